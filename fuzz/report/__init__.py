"""Report: what a person or a script reads: one screen, live progress, JSON, a stand-alone script."""
