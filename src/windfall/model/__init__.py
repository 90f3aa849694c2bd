"""The model: frozen, validated records, which every package may use.  The model imports only `errors` of Windfall."""
