"""The terms of a rank in a hash table, with threads, truncation and the ledger of what was dropped."""
