#!/bin/sh
cd /app || exit 1
reward=0
if [ "$(python3 greet.py Ada)" = "hello Ada" ]; then reward=1; fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
