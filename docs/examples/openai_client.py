"""The official client, unchanged but for its base URL; the cache's verdict is in the headers. Usage: openai_client.py [BASE_URL]"""
import sys

import openai

client = openai.OpenAI(base_url=(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080") + "/v1", api_key="any")
model = client.models.list().data[0].id
question = [{"role": "user", "content": "How do I reset my password?"}]

for _ in range(2):
    raw = client.chat.completions.with_raw_response.create(model=model, messages=question, max_tokens=64, temperature=0, stop=["."])
    print(raw.headers["x-deja-cache"], "|", repr(raw.parse().choices[0].message.content))

stream = client.chat.completions.create(model=model, messages=question, max_tokens=64, temperature=0, stop=["."], stream=True)
print("stream |", repr("".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)))
