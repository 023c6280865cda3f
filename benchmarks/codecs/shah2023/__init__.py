"""The seed's framework: Shah et al., "GPU-Accelerated Error-Bounded Compression Framework for Quantum Circuit
Simulations" (IPDPS 2023), stage by stage, to be composed and compared.

For float32 components, each by itself. Not for keeping data: a threshold above the bound breaks the bound,
and the bytes carry no checksum; `compress.compress` is for that.
"""
