"""An ASGI application served over HTTP or HTTPS by uvicorn."""
