"""Setup: tracing of a process is set up, from the environment or by `configure`, in whatever the app has already."""
