"""One prompt in many repositories: tasks from a file, each headless in a tree of its own."""
