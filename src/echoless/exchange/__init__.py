"""Import from and export to other libraries."""

from echoless.exchange.export import ExportReport, export_encoder
from echoless.exchange.hf_vitmae import load_hf_vitmae

__all__ = ["ExportReport", "export_encoder", "load_hf_vitmae"]
