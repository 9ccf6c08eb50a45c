"""The processes of a judgement: that of the problem, that of the solution, and what the caller asks them."""
