"""What each method would need for a question, before anything runs."""
