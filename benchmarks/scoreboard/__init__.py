"""The scoreboard: acceptance rules against planted bugs and honest cases, the same cases for every rule."""
