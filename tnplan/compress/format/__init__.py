"""The stream: header, frames, quantizers and the order of elements."""
