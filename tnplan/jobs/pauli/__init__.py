"""What a propagation is asked, how it is answered, and what is reported."""
