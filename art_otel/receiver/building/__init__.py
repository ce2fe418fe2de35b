"""Building: which rollouts of the spool have ended, and their trajectories, built by a process of their own."""
