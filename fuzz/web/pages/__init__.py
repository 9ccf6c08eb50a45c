"""Findings as HTML, for a report in one file and for the service.

Every text is escaped by the templates; nothing here marks a text from outside as safe.
"""
