"""Jobs after their end: `archive` writes and reads what they answered, and `server` shows it (`penstock history`)."""
