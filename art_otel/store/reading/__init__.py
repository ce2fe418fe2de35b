"""Reading: the rows of a dataset, all or those that are wanted."""
