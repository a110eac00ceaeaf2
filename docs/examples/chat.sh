#!/usr/bin/env bash
# Asks the same thing twice and shows what Deja did. Usage: chat.sh [BASE_URL]   (http://127.0.0.1:8080); DEJA_API_KEY = a key, where one is needed
set -euo pipefail
base=${1:-http://127.0.0.1:8080}
auth=(${DEJA_API_KEY:+-H "Authorization: Bearer $DEJA_API_KEY"})
model=$(curl -fsS "${auth[@]}" "$base/v1/models" | grep -o '"id": *"[^"]*"' | head -n 1 | cut -d'"' -f4)
for _ in 1 2; do
    curl -fsS -i "${auth[@]}" "$base/v1/chat/completions" -H 'Content-Type: application/json' \
        -d "{\"model\":\"$model\",\"max_tokens\":64,\"temperature\":0,\"stop\":[\".\"],\"messages\":[{\"role\":\"user\",\"content\":\"How do I reset my password?\"}]}" |
        grep -iE '^(x-deja-cache|x-deja-reason|cache-status|age):|^\{'
done
