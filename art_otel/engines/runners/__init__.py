"""Runners: the engines that there are: this process, processes of this machine, Ray."""
