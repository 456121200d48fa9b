"""Who listens to the graph: metrics, stories of finished requests, logs and spans.

Everything about one request is computed once, at its end, in `figures`; the four listeners only
write it down, so they cannot disagree. Nothing here ever sees a prompt, a text or a token id.
"""
