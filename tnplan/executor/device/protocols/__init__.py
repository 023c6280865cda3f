"""The protocols of devices, communicators and codecs, and arithmetic that all devices share."""
