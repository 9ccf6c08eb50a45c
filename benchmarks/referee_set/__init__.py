"""Ten problems with honest solutions, cheats and subtle mistakes, and the rules by which others accept solutions."""
