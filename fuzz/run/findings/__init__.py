"""From what disagrees in a run to saved bugs, one for each cause."""
