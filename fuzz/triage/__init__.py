"""Turns disagreements into bugs: confirms, shrinks, adjudicates, diagnoses and cross-checks them."""
