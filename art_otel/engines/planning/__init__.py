"""Planning: what each task takes, and which slot each trace goes to, decided from sizes and links alone."""
