"""What a person declares: frozen pydantic models, read from YAML with positions."""
