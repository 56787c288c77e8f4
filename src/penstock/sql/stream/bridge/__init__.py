"""Records of streams as rows of tables, and back."""
