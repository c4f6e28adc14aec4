"""Import from and export to other libraries."""

from echoless.exchange.export import ExportReport, export_encoder
from echoless.exchange.hf_vitmae import load_hf_vitmae
from echoless.exchange.importing import ImportReport, import_checkpoint
from echoless.exchange.inspecting import inspect_model

__all__ = ["ExportReport", "ImportReport", "export_encoder", "import_checkpoint", "inspect_model", "load_hf_vitmae"]
