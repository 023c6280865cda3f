"""Which device and which codec a rank takes."""
