"""Configurations of training frameworks: read into a job, and written from one."""
