"""Running a built network, and measuring how long it takes."""
