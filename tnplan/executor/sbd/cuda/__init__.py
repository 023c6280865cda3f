"""The steps of a product on a GPU."""
