"""What every package here builds on: arrays, dates, files, text and parallel work."""
