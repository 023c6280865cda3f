"""Changes of layout between ranks: peer copies, packed messages, chunks, compressed messages."""
