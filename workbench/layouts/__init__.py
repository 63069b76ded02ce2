"""KV-cache byte layouts, one file a layout."""
