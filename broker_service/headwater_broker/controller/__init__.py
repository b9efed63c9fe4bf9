"""The controller: pure decisions on one event queue, and the loop that carries them out."""
