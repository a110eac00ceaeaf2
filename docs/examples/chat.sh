#!/usr/bin/env bash
# Asks the same thing twice and shows what Deja did. Usage: chat.sh [BASE_URL]   (http://127.0.0.1:8080)
set -euo pipefail
base=${1:-http://127.0.0.1:8080}
model=$(curl -fsS "$base/v1/models" | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
for _ in 1 2; do
    curl -fsS -i "$base/v1/chat/completions" -H 'Content-Type: application/json' \
        -d "{\"model\":\"$model\",\"max_tokens\":64,\"temperature\":0,\"stop\":[\".\"],\"messages\":[{\"role\":\"user\",\"content\":\"How do I reset my password?\"}]}" |
        grep -iE '^(x-deja-cache|x-deja-reason|cache-status|age):|^\{'
done
