"""Cases that tests and benchmarks measure memory on, written before what is measured was tuned."""
