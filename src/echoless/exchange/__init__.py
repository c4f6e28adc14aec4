"""Import from and export to other libraries."""

from echoless.exchange.hf_vitmae import load_hf_vitmae

__all__ = ["load_hf_vitmae"]
