"""Setup: sets up the tracing of a process, from the environment or by `configure`, beside what the app has set up."""
