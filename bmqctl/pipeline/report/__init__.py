"""The report over an export: its model, figures and page."""
