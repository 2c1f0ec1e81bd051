"""The pictures of docs/: what somebody sees who asks the default model a few things, on a wide screen and on a phone."""

import os

LOOKS = {
    "playground.png": {"width": 1280, "height": 800},
    "playground_phone.png": {"width": 390, "height": 844, "mobile": True, "scheme": "dark"},
}
QUESTIONS = ["What is the capital of France?", "Tell me a short story about a fox."]


def talk(p):
    page = p.ready()
    page.fill("#seed", "1")
    for question in QUESTIONS:
        p.ask(question)
    page.choose("#tool_choice", "required")
    p.ask("What is the weather in Paris?")
    page.js("document.activeElement.blur()")


def take(place, folder):
    for name, look in LOOKS.items():
        with place.open(**look) as p:
            talk(p)
            p.page.picture(os.path.join(folder, name))
    return 0
