"""Models behind their APIs, one file each; their SDKs are extras, imported when a model is first asked."""
