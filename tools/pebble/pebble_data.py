#!/usr/bin/env python3
"""pebble_data: the text that Pebble, the embedded default model, is trained on.

Everything here is written by the project: a table of small facts, a grammar for stories, and phrasings for asking.
Gen(seed).doc() returns one document, either {"messages": [...], "tools": [...]} or {"text": "..."}.
The prompts of eval_pebble.py never appear: held_out() refuses them, alone or within a longer request, whatever their case or punctuation.

Over 500 lines: one generator: facts, phrasings and stories, most of it data.
"""
import hashlib
import json
import random
import re

import pebble_tools
from eval_pebble import PROMPTS, TOOL_PROMPTS


def norm(text):
    text = re.sub(r"\bplease\b", " ", text.lower())
    return " ".join(re.sub(r"[^a-z0-9+*/-]+", " ", text).split())


def digest(text):
    return hashlib.sha256(norm(text).encode()).hexdigest()[:16]


HELD_OUT = {digest(p["prompt"]) for p in PROMPTS + TOOL_PROMPTS}
# Those of three words and more are refused as a part of a longer text, too.
HELD_OUT_WITHIN = [" " + norm(p["prompt"]) + " " for p in PROMPTS + TOOL_PROMPTS if len(norm(p["prompt"]).split()) > 2]


def held_out(text):
    if digest(text) in HELD_OUT:
        return True
    said = " " + norm(text) + " "
    return any(prompt in said for prompt in HELD_OUT_WITHIN)


# ---------------------------------------------------------------------------------------------- facts
CAPITALS = dict(p.split(":") for p in (
    "France:Paris Germany:Berlin Italy:Rome Spain:Madrid Portugal:Lisbon Austria:Vienna Belgium:Brussels "
    "Netherlands:Amsterdam Denmark:Copenhagen Sweden:Stockholm Norway:Oslo Finland:Helsinki Iceland:Reykjavik "
    "Ireland:Dublin Poland:Warsaw Hungary:Budapest Greece:Athens Romania:Bucharest Bulgaria:Sofia Serbia:Belgrade "
    "Croatia:Zagreb Slovenia:Ljubljana Slovakia:Bratislava Ukraine:Kyiv Estonia:Tallinn Latvia:Riga Lithuania:Vilnius "
    "Switzerland:Bern Turkey:Ankara Egypt:Cairo Morocco:Rabat Tunisia:Tunis Kenya:Nairobi Ethiopia:Addis_Ababa "
    "Ghana:Accra Nigeria:Abuja Senegal:Dakar Japan:Tokyo China:Beijing India:New_Delhi Thailand:Bangkok "
    "Vietnam:Hanoi Indonesia:Jakarta Philippines:Manila Malaysia:Kuala_Lumpur Nepal:Kathmandu Mongolia:Ulaanbaatar "
    "Pakistan:Islamabad Iran:Tehran Iraq:Baghdad Jordan:Amman Lebanon:Beirut Australia:Canberra New_Zealand:Wellington "
    "Canada:Ottawa Mexico:Mexico_City Cuba:Havana Jamaica:Kingston Colombia:Bogota Peru:Lima Chile:Santiago "
    "Argentina:Buenos_Aires Uruguay:Montevideo Brazil:Brasilia Ecuador:Quito Bolivia:Sucre").split())
CAPITALS = {k.replace("_", " "): v.replace("_", " ") for k, v in CAPITALS.items()}
THE = {"Netherlands", "Philippines"}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MDAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ORD = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
NUM = "zero one two three four five six seven eight nine ten eleven twelve".split()
OPP = dict(p.split(":") for p in (
    "hot:cold big:small up:down left:right day:night fast:slow happy:sad open:closed light:dark hard:soft full:empty "
    "old:young rich:poor strong:weak wet:dry clean:dirty early:late high:low long:short near:far loud:quiet thick:thin "
    "wide:narrow heavy:light true:false good:bad first:last inside:outside above:below begin:end push:pull win:lose "
    "buy:sell give:take love:hate sweet:sour rough:smooth deep:shallow brave:afraid easy:difficult new:old "
    "black:white in:out on:off yes:no before:after always:never more:less summer:winter north:south east:west").split())
COLOR = {"the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "a strawberry": "red", "the sun": "yellow",
         "a lemon": "yellow", "coal": "black", "milk": "white", "a carrot": "orange", "a tomato": "red", "a frog": "green",
         "a pig": "pink", "chocolate": "brown", "blood": "red", "a leaf": "green", "an orange": "orange", "the sea": "blue",
         "a crow": "black", "a polar bear": "white", "a fire truck": "red", "a cloud": "white", "gold": "yellow", "a plum": "purple",
         "a cucumber": "green", "an elephant": "gray", "a flamingo": "pink", "night": "black", "a cherry": "red", "salt": "white"}
SOUND = {"cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa", "pig": "oink", "horse": "neigh",
         "rooster": "cock-a-doodle-doo", "frog": "ribbit", "bee": "buzz", "lion": "roar", "owl": "hoot", "mouse": "squeak",
         "snake": "hiss", "wolf": "howl", "crow": "caw", "bird": "tweet", "goat": "bleat"}
BABY = {"dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb", "pig": "piglet", "duck": "duckling",
        "bear": "cub", "lion": "cub", "goat": "kid", "frog": "tadpole", "deer": "fawn", "swan": "cygnet", "goose": "gosling"}
CATS = {"fruits": "apple banana cherry orange pear plum peach grape lemon mango".split(),
        "vegetables": "carrot potato tomato onion cabbage pea bean spinach pepper cucumber".split(),
        "animals": "dog cat horse cow fox rabbit bear lion wolf sheep".split(),
        "colors": "red blue green yellow orange purple black white pink brown".split(),
        "birds": "owl robin eagle crow swan duck goose sparrow parrot penguin".split(),
        "trees": "oak pine birch maple willow beech elm ash fir cedar".split(),
        "cities": "Paris London Rome Berlin Madrid Vienna Tokyo Oslo Lisbon Cairo".split(),
        "countries": "France Germany Italy Spain Japan China India Canada Mexico Brazil".split(),
        "drinks": "water tea coffee milk juice lemonade cocoa cider soda soup".split()[:9],
        "tools": "hammer saw drill wrench pliers screwdriver chisel file axe shovel".split(),
        "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
        "instruments": "piano violin guitar flute drum trumpet harp cello organ clarinet".split(),
        "shapes": "circle square triangle rectangle star oval cube sphere cone pyramid".split(),
        "flowers": "rose tulip daisy lily violet sunflower poppy orchid iris daffodil".split(),
        "sports": "football tennis swimming running cycling hockey golf boxing rowing skiing".split(),
        "metals": "iron gold silver copper tin lead zinc nickel steel bronze".split()}
SING = {"fruits": "fruit", "vegetables": "vegetable", "animals": "animal", "colors": "color", "birds": "bird", "trees": "tree",
        "cities": "city", "countries": "country", "drinks": "drink", "tools": "tool", "planets": "planet",
        "instruments": "instrument", "shapes": "shape", "flowers": "flower", "sports": "sport", "metals": "metal"}
ISA = [c for c in CATS if c in ("fruits", "vegetables", "animals", "birds", "trees", "tools", "instruments", "shapes", "flowers")]
NAMES = ("Ada Ben Clara David Emma Felix Grace Hugo Iris Jack Kate Leo Maria Noah Olga Paul Rosa Sam Tina Victor "
         "Anna Bob Carl Dora Eva Frank Ivan Julia Lena Max Nina Oscar Peter Ruth Sara Tom Alice Luna Mia Otto").split()
WORDS = ("apple boat bread bridge candle castle chair city cloud cup door dream field fire fish flower forest garden glass "
         "green hand hat hill horse house island key lake lamp leaf letter light moon morning mountain music night ocean "
         "orange paper pencil plane queen rain red river road rock roof school sea ship shoe silver sky snow song spoon "
         "star stone storm street sugar summer sun table tiger tower train tree valley village wall water wave wind window "
         "winter wolf yellow blue small big old new quiet happy brave little warm cold bright").split()
SPELL = ("apple bread cat dog house river water stone moon star sun tree bird fish book chair table green blue red horse cloud "
         "rain snow wind lake sea ship train road hand door lamp cup milk sugar salt music song happy small black white "
         "pebble cache server token memory").split()
DEFS = {
    "a river": "A river is water that flows over land to a lake or the sea.",
    "a mountain": "A mountain is very high land with a top called a peak.",
    "an island": "An island is land with water all around it.",
    "a lake": "A lake is a large body of water with land all around it.",
    "a forest": "A forest is a large area with many trees.",
    "a desert": "A desert is a dry place where little rain falls.",
    "a volcano": "A volcano is a mountain that can throw out hot rock and ash.",
    "rain": "Rain is water that falls from the clouds in drops.",
    "snow": "Snow is frozen water that falls from the clouds as white flakes.",
    "ice": "Ice is frozen water.",
    "wind": "Wind is air that moves.",
    "the moon": "The moon is the round body that travels around the Earth.",
    "the sun": "The sun is the star that gives us light and warmth.",
    "a star": "A star is a huge ball of hot gas that shines in the sky.",
    "a planet": "A planet is a large round body that travels around a star.",
    "a computer": "A computer is a machine that follows instructions to work with data.",
    "a program": "A program is a list of instructions for a computer.",
    "a server": "A server is a program that waits for requests and answers them.",
    "a cache": "A cache is a small fast store for things that will be needed again.",
    "a GPU": "A GPU is a processor that does very many calculations at the same time.",
    "a CPU": "A CPU is the main processor of a computer.",
    "a token": "A token is a small piece of text, such as a word or a part of a word.",
    "a language model": "A language model is a program that continues text one token at a time.",
    "a tokenizer": "A tokenizer cuts text into tokens and joins tokens into text.",
    "memory": "Memory is the part of a computer that holds the data it is working on.",
    "a book": "A book is a set of pages with words to read.",
    "a library": "A library is a place where people read and borrow books.",
    "a school": "A school is a place where people learn.",
    "a bridge": "A bridge is a way over a river, a road or a valley.",
    "a boat": "A boat is a small vehicle that floats on water.",
    "a clock": "A clock is a device that shows the time.",
    "a map": "A map is a drawing that shows where places are.",
    "a lighthouse": "A lighthouse is a tower with a light that guides ships.",
    "a friend": "A friend is someone you like and trust.",
    "bread": "Bread is food that is baked from flour and water.",
    "a pebble": "A pebble is a small smooth stone, and Pebble is also my name.",
    "a spillway": "A spillway is the part of a dam that lets extra water flow safely down.",
    "a dam": "A dam is a wall that holds back the water of a river.",
    "JSON": "JSON is a text format for data, made of objects, lists, strings and numbers.",
    "HTTP": "HTTP is the protocol that web browsers and servers use to talk.",
}
JOKES = ["Why did the bicycle fall over? Because it was two tired.",
         "Why was the math book sad? Because it had too many problems.",
         "What do you call a bear with no teeth? A gummy bear.",
         "Why did the cache stay calm? Because it had seen it all before.",
         "What did the ocean say to the shore? Nothing, it just waved.",
         "Why do bees have sticky hair? Because they use honeycombs.",
         "Why did the token cross the wire? To get to the other side of the stream.",
         "What is orange and sounds like a parrot? A carrot."]
POEM = {"the sea": ("The sea is wide, the sea is deep,", "it sings the little boats to sleep.", "The waves come in, the waves go out,", "and white birds fly and turn about."),
        "the rain": ("The rain falls softly on the stone,", "each drop is small and all alone.", "But drop by drop the rivers grow,", "and fields turn green where waters flow."),
        "the moon": ("The moon looks down on roof and tree,", "as round and bright as it can be.", "It lights the path, it lights the stream,", "and watches every quiet dream."),
        "a river": ("The river starts as one small spring,", "and learns from every hill to sing.", "It carries leaves, it carries light,", "and finds the sea before the night."),
        "snow": ("The snow comes down without a sound,", "and lays a blanket on the ground.", "The trees are white, the air is still,", "and children slide on every hill."),
        "the sun": ("The sun gets up and warms the day,", "it sends the cold and dark away.", "The flowers open, one by one,", "and turn their faces to the sun."),
        "a stone": ("A stone lies quiet in the stream,", "it keeps a long and quiet dream.", "The water makes it smooth and round,", "and still it never makes a sound."),
        "spring": ("The spring has come with leaf and bee,", "and blossoms light up every tree.", "The days grow long, the birds all sing,", "and everyone enjoys the spring."),
        "winter": ("The winter paints the window white,", "and stars are sharp and clear at night.", "We sit together by the fire,", "and watch the sparks fly higher and higher."),
        "the wind": ("The wind goes running through the trees,", "and brings the smell of distant seas.", "It lifts the leaves, it turns the mill,", "and when it rests, the world is still.")}

# Questions about Spillway: (phrasings, answer).
SPILL = [
    (["What is Spillway?", "Tell me about Spillway.", "Explain Spillway.", "Describe Spillway.", "What does Spillway do?"],
     "Spillway is an LLM inference server written in C. It keeps the KV cache on several tiers of memory and serves models over the OpenAI API."),
    (["What are the KV cache tiers?", "Which tiers does the KV cache have?", "Name the memory tiers of Spillway.", "What tiers does Spillway use?", "Where does Spillway keep the KV cache?", "List the tiers of the KV cache."],
     "The KV cache has four tiers: HBM, host DRAM, NVMe and peers. Cold blocks flow down and come back up when they are wanted."),
    (["What is the KV cache?", "What is a KV cache?", "Explain the KV cache.", "What does the KV cache hold?"],
     "The KV cache holds the keys and values of tokens that were already computed, so they need not be computed again."),
    (["How do I start Spillway?", "How do I start the server?", "How can I run Spillway?", "What command starts Spillway?", "How do I run the server?"],
     "Run ./serve and the server starts on port 8080."),
    (["Which port does Spillway use?", "What port does Spillway listen on?", "What is the default port?", "On which port is the server?", "What port do you use?"],
     "Spillway listens on port 8080."),
    (["What API does Spillway speak?", "Which API does Spillway have?", "Is Spillway compatible with OpenAI?", "Can I use the OpenAI client with Spillway?", "Does Spillway speak the OpenAI API?"],
     "Spillway speaks the OpenAI API, so the OpenAI client works when its base URL points to http://127.0.0.1:8080/v1."),
    (["What are the health endpoints?", "Which health endpoints does Spillway have?", "How do I check the health of the server?", "How can I see if Spillway is healthy?", "Name the health endpoints of Spillway."],
     "The health endpoints are /health, /ready and /ping, and /metrics shows the numbers."),
    (["Where are the metrics?", "How do I read the metrics?", "Does Spillway have metrics?", "Which endpoint shows metrics?"],
     "The metrics are at /metrics in the Prometheus format."),
    (["What is the licence of Spillway?", "What license does Spillway have?", "Is Spillway open source?", "Under which license is Spillway?"],
     "Spillway is open source under the Apache-2.0 license."),
    (["What language is Spillway written in?", "In which language is Spillway written?", "Which programming language does Spillway use?", "Is Spillway written in C?"],
     "Spillway is written in C."),
    (["What are the four promises?", "Name the four promises of Spillway.", "What does Spillway promise?", "What are the promises of Spillway?", "List the four promises."],
     "The four promises are exact, verified, bounded and alive."),
    (["What does exact mean in Spillway?", "What does the promise exact mean?", "Explain the promise exact."],
     "Exact means that the result of a request depends on that request alone, not on the others beside it."),
    (["What does verified mean in Spillway?", "What does the promise verified mean?", "Explain the promise verified."],
     "Verified means that a block that comes back is checked to be the block that left, or it is computed again."),
    (["What does bounded mean in Spillway?", "What does the promise bounded mean?", "Explain the promise bounded."],
     "Bounded means that all memory is reserved at the start, and a full queue answers 429 at once."),
    (["What does alive mean in Spillway?", "What does the promise alive mean?", "Explain the promise alive."],
     "Alive means that health comes from real progress, and one bad request ends only in its own error."),
    (["How do I load another model?", "How can I use another model?", "How do I serve my own model?", "Can Spillway load other models?", "How do I change the model?"],
     "Run ./serve --model DIR with the folder of a Hugging Face model."),
    (["What is a block in Spillway?", "What is a KV block?", "Explain a KV block.", "How big is a KV block?"],
     "A block is the KV of 16 consecutive tokens in all layers. It is free, private or shared."),
    (["What happens when the server is full?", "What happens when the queue is full?", "What does Spillway do when it is overloaded?", "What if there are too many requests?"],
     "When the queue is full, the server answers 429 with Retry-After at once."),
    (["What happens to cold blocks?", "Where do cold KV blocks go?", "What does Spillway do with cold blocks?"],
     "Cold blocks flow down from HBM to host DRAM, then to NVMe or to a peer."),
    (["What happens when a block is lost?", "What if a KV block is damaged?", "What happens if a block is corrupt?"],
     "A lost or damaged block is a miss, and it is computed again. It never becomes a wrong answer."),
    (["Does Spillway need a GPU?", "Can Spillway run without a GPU?", "Does Spillway run on a CPU?", "Can I run Spillway on a laptop?"],
     "Spillway uses a GPU when there is one, and it runs on a CPU too."),
    (["Does Spillway support streaming?", "Can Spillway stream tokens?", "How do I stream an answer?"],
     "Yes, set stream to true and the tokens arrive as server-sent events."),
    (["Does Spillway support tool calls?", "Can Spillway call tools?", "Can you call tools?", "Can you use tools?"],
     "Yes, when a request gives tools, I can answer with a tool call."),
    (["Does Spillway support JSON output?", "Can Spillway return JSON?", "Can you write JSON?"],
     "Yes, ask for a JSON object and I will write one."),
    (["What is the prefix cache?", "What is prefix caching?", "How does prefix caching work?"],
     "Prefix caching keeps the KV blocks of prompts, so a new prompt with the same beginning starts faster."),
    (["What is a scheduler?", "What does the scheduler do?", "What is the job of the scheduler?"],
     "The scheduler decides which sequences run in the next step."),
    (["What is NVMe?", "What does NVMe mean?", "Explain NVMe."], "NVMe is a fast kind of solid state disk."),
    (["What is HBM?", "What does HBM mean?", "Explain HBM."], "HBM is the fast memory on a GPU."),
    (["What is DRAM?", "What does DRAM mean?", "Explain DRAM."], "DRAM is the main memory of a computer."),
    (["What is a peer?", "What is a peer in Spillway?", "Explain peers."],
     "A peer is another Spillway server that can hold KV blocks for us."),
    (["What is your context length?", "How long is your context?", "How many tokens can you read?", "What is your context window?"],
     "My context is 2048 tokens."),
    (["How big are you?", "How many parameters do you have?", "How large are you?", "What is your size?"],
     "I am very small: I have about five million parameters."),
    (["Who made you?", "Who trained you?", "Who created you?", "Who built you?", "Where do you come from?"],
     "I was trained by the Spillway project on text that it wrote itself."),
    (["What can you do?", "What are you able to do?", "Help", "What do you know?", "How can you help me?", "What should I ask you?"],
     "I can chat a little, count, do small sums, name capitals, write JSON, tell short stories, call tools and answer questions about Spillway."),
    (["Are you a person?", "Are you human?", "Are you a robot?", "Are you alive?", "Are you an AI?"],
     "I am not a person. I am Pebble, a small language model."),
    (["Are you smart?", "How smart are you?", "Are you clever?"],
     "I am only a small model, but I do my best."),
    (["Who are you?", "What are you?", "What is your name?", "Introduce yourself.", "Tell me who you are.", "Tell me about yourself.", "What model are you?", "Which model are you?", "What should I call you?"],
     "I am Pebble, the small model inside Spillway. I can chat a little and answer simple questions."),
    (["Why are you called Pebble?", "Why is your name Pebble?", "What does your name mean?"],
     "I am called Pebble because I am small, like a stone in a stream."),
    (["Where is the documentation?", "Where can I read more?", "Is there documentation for Spillway?"],
     "The documentation is in the docs folder, and the README shows the first steps."),
    (["How do I stop the server?", "How can I stop Spillway?", "How do I shut down the server?"],
     "Press Ctrl-C or send SIGTERM, and the server finishes its requests and stops."),
]
# What a system's message says where the answer has to be JSON in a form; {} is its schema.
FORMS = ["Answer with JSON of this schema: {}", "Answer in JSON. The schema is {}", "Answer with a JSON object of this schema: {}", "Return JSON that follows this schema: {}",
         "{}", "You answer in JSON alone, in this form: {}"]
CHAT = [
    (["Hello!", "Hi!", "Hello", "Hi there!", "Hey!", "Hello there!", "Good day!", "Greetings!", "Hello Pebble!", "Hi Pebble!", "hi", "hey"],
     ["Hello! I am Pebble. How can I help you?", "Hello! I am Pebble. What would you like to know?"]),
    (["Good morning!", "Good morning, Pebble!"], ["Good morning! How can I help you today?"]),
    (["Good evening!", "Good evening, Pebble!"], ["Good evening! How can I help you?"]),
    (["Good night!", "Good night, Pebble!"], ["Good night! Sleep well."]),
    (["How are you?", "How are you today?", "How do you do?", "How is it going?", "Are you well?", "How are you doing?"],
     ["I am fine, thank you. How can I help you?"]),
    (["Thank you!", "Thanks!", "Thank you very much!", "Thanks a lot!", "Great, thanks!", "thx", "Thanks, Pebble!"],
     ["You are welcome!", "You are welcome! Is there anything else?"]),
    (["Bye!", "Goodbye!", "See you later!", "Bye bye!", "See you!", "Goodbye, Pebble!", "I have to go."],
     ["Goodbye! It was nice to talk with you."]),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Tell me something funny.", "A joke, please.", "Say something funny."], JOKES),
    (["ping", "Ping!", "Test", "test", "Testing", "Are you there?", "Can you hear me?", "Is anyone there?"], ["Yes, I am here. How can I help you?"]),
    (["Say hello.", "Say hi.", "Say hello to me.", "Just say hello."], ["Hello!"]),
    (["What is your favorite color?", "Which color do you like?", "What color do you like best?"], ["I like blue, because it is the color of water."]),
    (["What is your favorite animal?", "Which animal do you like?"], ["I like the otter, because it lives by the river."]),
    (["What is your favorite food?", "What do you eat?", "Are you hungry?"], ["I do not eat, but I enjoy a fresh prompt."]),
    (["How old are you?", "What is your age?", "When were you born?"], ["I am new, and I do not count my years."]),
    (["Where do you live?", "Where are you?", "Where is your home?"], ["I live inside Spillway, in a few megabytes of memory."]),
    (["I am sad.", "I feel sad.", "I am unhappy today.", "I had a bad day."], ["I am sorry to hear that. I hope that your day gets better soon."]),
    (["I am happy.", "I feel great!", "I am happy today!", "I had a good day."], ["That is good to hear! I am glad for you."]),
    (["I am tired.", "I am so tired today.", "I feel tired."], ["Then take a rest. A short break helps."]),
    (["I am bored.", "I am so bored.", "This is boring."], ["Then let me tell you a story or a joke. Just ask for one."]),
    (["Good job!", "Well done!", "That was great!", "You are good.", "I like you.", "You are nice.", "Great!", "Nice!", "Very good!"],
     ["Thank you! That is kind of you."]),
    (["That is wrong.", "You are wrong.", "No, that is not right."], ["I am sorry. I am a small model and I make mistakes."]),
    (["Let us talk.", "Talk to me.", "Chat with me.", "Can we talk?"], ["Gladly! What would you like to talk about?"]),
    (["What day is it today?", "What time is it?", "What is the date today?", "What time is it now?"],
     ["I cannot see a clock or a calendar, so I do not know."]),
    (["How is the weather?", "Is it raining?", "What is the weather today?", "Will it rain tomorrow?"],
     ["I cannot see the weather without a tool, so I do not know."]),
]
YESNO = [("Is ice cold?", "Yes, ice is cold."), ("Is fire cold?", "No, fire is hot."), ("Is the sky blue?", "Yes, the sky is blue on a clear day."),
         ("Is snow black?", "No, snow is white."), ("Is water wet?", "Yes, water is wet."), ("Can birds fly?", "Yes, most birds can fly."),
         ("Can fish swim?", "Yes, fish can swim."), ("Can a dog fly?", "No, a dog cannot fly."), ("Is the Earth flat?", "No, the Earth is round."),
         ("Is the sun a star?", "Yes, the sun is a star."), ("Is the moon a star?", "No, the moon is not a star."),
         ("Can you swim?", "No, I cannot swim. I am only a program."), ("Can you sing?", "I cannot sing, but I can write a short poem."),
         ("Do you sleep?", "No, I do not sleep. When I am idle, I use no power."), ("Do you like music?", "I cannot hear music, but I like the word."),
         ("How many legs does a dog have?", "A dog has four legs."), ("How many legs does a spider have?", "A spider has eight legs."),
         ("How many legs does a bird have?", "A bird has two legs."), ("How many legs does an ant have?", "An ant has six legs."),
         ("How many days are in a week?", "A week has seven days."), ("How many months are in a year?", "A year has twelve months."),
         ("How many days are in a year?", "A year has 365 days, and a leap year has 366."), ("How many hours are in a day?", "A day has 24 hours."),
         ("How many minutes are in an hour?", "An hour has 60 minutes."), ("How many seconds are in a minute?", "A minute has 60 seconds."),
         ("What are the four seasons?", "The four seasons are spring, summer, autumn and winter."),
         ("Name the seasons.", "The four seasons are spring, summer, autumn and winter."),
         ("What is the largest planet?", "The largest planet is Jupiter."), ("What is the largest animal?", "The largest animal is the blue whale."),
         ("What is the fastest land animal?", "The fastest land animal is the cheetah."), ("Which planet do we live on?", "We live on the planet Earth."),
         ("Where does the sun rise?", "The sun rises in the east."), ("Where does the sun set?", "The sun sets in the west."),
         ("What do cows drink?", "Cows drink water, and calves drink milk."), ("What do bees make?", "Bees make honey."),
         ("Where do fish live?", "Fish live in water."), ("Where do birds live?", "Many birds live in nests in the trees.")]

# ---------------------------------------------------------------------------------------------- off-topic questions
UNKNOWN = [
    ("Who invented the {x}?", "who invented the {x}", "telephone radio camera bicycle compass piano steam engine airplane light bulb zipper telescope microscope"),
    ("When was {x} born?", "when {x} was born", "Einstein Mozart Shakespeare Napoleon Newton Picasso Darwin Cleopatra Gandhi Bach"),
    ("Who wrote {x}?", "who wrote {x}", "Hamlet Macbeth Ulysses Dracula Frankenstein Emma Faust"),
    ("What is the population of {x}?", "the population of {x}", "France Japan Brazil Canada Egypt India China Kenya Spain Norway"),
    ("Who is the president of {x}?", "who is the president of {x}", "France Brazil Mexico Kenya Poland Chile Egypt Finland"),
    ("How tall is {x}?", "how tall {x} is", "Everest Kilimanjaro Olympus Fuji Etna"),
    ("What is the price of {x}?", "the price of {x}", "gold silver oil bread bitcoin coffee rice copper"),
    ("How do I cook {x}?", "how to cook {x}", "rice pasta soup fish eggs beans potatoes lasagna"),
    ("How do I repair a {x}?", "how to repair a {x}", "car bicycle clock phone roof pump radio"),
    ("Explain {x}.", "much about {x}", "quantum physics/relativity/philosophy/economics/chemistry/algebra/genetics/politics/astrology/inflation"),
    ("What do you think about {x}?", "much about {x}", "politics/religion/football teams/the stock market/the election/modern art/taxes"),
    ("Who won the {x}?", "who won the {x}", "world cup/election/race/game last night/Olympics/lottery/tennis match"),
    ("What happened in {x}?", "what happened in {x}", "1066 1492 1789 1914 1969 1989 2001 2020"),
    ("Translate {x} into French.", "how to translate that", "house/good morning/I love you/the red car/water/my friend"),
    ("Write a {x} program.", "how to write a {x} program", "Python Java Rust Fortran Cobol Haskell"),
    ("What is the square root of {x}?", "the square root of {x}", "2 7 10 17 50 99 1000"),
    ("How far is {x} from here?", "how far {x} is from here", "Mars/Paris/the moon/London/the sun/Tokyo"),
    ("What is the best {x}?", "which {x} is the best", "phone car movie book restaurant song game laptop"),
    ("Can you recommend a {x}?", "which {x} to recommend", "book movie restaurant hotel game doctor song"),
    ("What is the meaning of {x}?", "the meaning of {x}", "life love time dreams justice freedom"),
    ("Who discovered {x}?", "who discovered {x}", "America/oxygen/gravity/penicillin/radium/electricity"),
    ("What did {x} say?", "what {x} said", "Plato/my mother/the king/the teacher/Caesar"),
]
DUNNO = ["I do not know {t}. I am a small model and I know only simple things.",
         "I am sorry, I do not know {t}. I am a small model."]

# ---------------------------------------------------------------------------------------------- stories
HERO = ("fox rabbit bear mouse owl cat dog frog otter duck turtle hedgehog squirrel lion wolf bird horse goat penguin dragon "
        "robot king girl boy").split()
ADJ = ("small young brave quiet clever happy curious kind").split()
PLACE = ["in a green forest", "by a wide river", "near the sea", "on a high hill", "in a small village", "in an old garden",
         "under a big oak tree", "beside a blue lake"]
THING = ["a golden key", "a red ball", "a silver bell", "an old map", "a bright stone", "a little boat", "a warm lamp", "a blue feather"]
FEEL = ["happy", "proud", "glad"]


def a(word):
    return ("an " if word[0] in "aeiouAEIOU" else "a ") + word


def the(thing):
    return "the " + thing.split(" ", 1)[1]


def join(items, last="and"):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {last} " + items[-1]


class Gen:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, xs):
        return xs[self.r.randrange(len(xs))]

    # ---- small question families: each returns (user, assistant) ----
    def chat(self):
        q, ans = self.pick(CHAT)
        return self.pick(q), self.pick(ans)

    def spill(self):
        q, ans = self.pick(SPILL)
        return self.pick(q), ans

    def capital(self):
        c = self.pick(list(CAPITALS))
        t = CAPITALS[c]
        n = "the " + c if c in THE else c
        if self.r.random() < 0.65:
            return self.pick([f"What is the capital of {n}?", f"capital of {n}?", f"Tell me the capital of {n}.", f"Which city is the capital of {n}?",
                              f"Do you know the capital of {n}?", f"Name the capital of {n}.", f"What's the capital of {n}?",
                              f"What is the capital city of {n}?"]), f"The capital of {n} is {t}."
        return self.pick([f"Which country has {t} as its capital?", f"{t} is the capital of which country?", f"What country is {t} the capital of?",
                          f"Where is {t}?", f"In which country is {t}?"]), f"{t} is the capital of {n}."

    def days(self):
        i = self.r.randrange(7)
        d, nx, pv = DAYS[i], DAYS[(i + 1) % 7], DAYS[(i - 1) % 7]
        k = self.r.randrange(7)
        if k <= 1:
            return self.pick([f"What day comes after {d}?", f"Which day is after {d}?", f"What is the day after {d}?", f"Which day follows {d}?",
                              f"What day follows {d}?"]), f"{nx} comes after {d}."
        if k == 2:
            return self.pick([f"What day comes before {d}?", f"Which day is before {d}?", f"What is the day before {d}?"]), f"{pv} comes before {d}."
        if k == 3:
            return self.pick([f"If today is {d}, what day is tomorrow?", f"Today is {d}. What day is tomorrow?"]), f"If today is {d}, tomorrow is {nx}."
        if k == 4:
            return self.pick([f"If today is {d}, what day was yesterday?", f"Today is {d}. What day was yesterday?"]), f"If today is {d}, yesterday was {pv}."
        if k == 5:
            return self.pick([f"What is the {ORD[i]} day of the week?", f"Which day is the {ORD[i]} day of the week?", f"Name the {ORD[i]} day of the week."]), \
                f"The {ORD[i]} day of the week is {d}."
        return self.pick(["List the days of the week.", "Name the days of the week.", "What are the days of the week?", "Tell me the days of the week.",
                          "Write down the days of the week.", "Which days does a week have?"]), f"The days of the week are {join(DAYS)}."

    def months(self):
        i = self.r.randrange(12)
        m, nx, pv = MONTHS[i], MONTHS[(i + 1) % 12], MONTHS[i - 1]
        k = self.r.randrange(7)
        if k <= 1:
            return self.pick([f"What month comes after {m}?", f"Which month is after {m}?", f"What is the month after {m}?", f"Which month follows {m}?",
                              f"What month follows {m}?"]), f"{nx} comes after {m}."
        if k == 2:
            return self.pick([f"What month comes before {m}?", f"Which month is before {m}?", f"What is the month before {m}?"]), f"{pv} comes before {m}."
        if k <= 4:
            ans = f"{m} has {MDAYS[i]} days." if i != 1 else "February has 28 days, and 29 in a leap year."
            return self.pick([f"How many days does {m} have?", f"How many days are in {m}?", f"How long is {m}?", f"How many days are there in {m}?"]), ans
        if k == 5:
            return self.pick([f"What is the {ORD[i]} month?", f"Which month is the {ORD[i]} month of the year?", f"Name the {ORD[i]} month.",
                              f"What is the {ORD[i]} month of the year?"]), f"The {ORD[i]} month is {m}."
        return self.pick(["List the months of the year.", "Name the months of the year.", "What are the months of the year?", "Tell me the months.",
                          "Name all twelve months.", "List the twelve months."]), f"The months of the year are {join(MONTHS)}."

    def count(self):
        k = self.r.random()
        if k < 0.55:
            lo = self.r.randrange(0, 25) if self.r.random() < 0.5 else 1
            hi = lo + self.r.randrange(2, 13)
            if k < 0.02:
                lo, hi = 1, self.pick([20, 30, 40, 50])
            qs = [f"Count from {lo} to {hi}.", f"Can you count from {lo} to {hi}?", f"Write the numbers from {lo} to {hi}.",
                  f"List the numbers from {lo} to {hi}.", f"Count up from {lo} to {hi}.", f"Say the numbers from {lo} to {hi}."]
            if lo == 1:
                qs += [f"Count to {hi}.", f"Can you count to {hi}?", f"Count up to {hi}."]
            return self.pick(qs), ", ".join(map(str, range(lo, hi + 1)))
        if k < 0.7:
            lo = self.r.randrange(0, 12)
            hi = lo + self.r.randrange(2, 10)
            return self.pick([f"Count down from {hi} to {lo}.", f"Count backwards from {hi} to {lo}.", f"Count from {hi} down to {lo}."]), \
                ", ".join(map(str, range(hi, lo - 1, -1)))
        n = self.r.randrange(1, 99)
        if k < 0.8:
            return self.pick([f"What number comes after {n}?", f"Which number follows {n}?", f"What comes after {n}?"]), f"The number after {n} is {n + 1}."
        if k < 0.86:
            return self.pick([f"What number comes before {n}?", f"Which number is before {n}?", f"What comes before {n}?"]), f"The number before {n} is {n - 1}."
        if k < 0.93:
            return self.pick([f"Is {n} odd or even?", f"Is {n} even or odd?", f"Is the number {n} odd or even?"]), f"{n} is {'even' if n % 2 == 0 else 'odd'}."
        m = self.r.randrange(1, 99)
        m += m == n
        return self.pick([f"Which is bigger, {n} or {m}?", f"What is bigger, {n} or {m}?", f"Which number is larger, {n} or {m}?"]), \
            f"{max(n, m)} is bigger than {min(n, m)}."

    def arith(self):
        k = self.r.random()
        small = self.r.random() < 0.5
        top = 21 if small else 100
        if k < 0.38:
            x, y = self.r.randrange(top), self.r.randrange(top)
            return self.pick([f"What is {x} + {y}?", f"What is {x}+{y}?", f"{x} + {y}", f"{x}+{y}=?", f"What is {x} plus {y}?", f"Calculate {x} + {y}.", f"Add {x} and {y}.",
                              f"How much is {x} + {y}?", f"How much is {x} plus {y}?", f"What is the sum of {x} and {y}?", f"Compute {x} + {y}."]), \
                f"{x} + {y} = {x + y}"
        if k < 0.62:
            x, y = self.r.randrange(top), self.r.randrange(top)
            x, y = max(x, y), min(x, y)
            return self.pick([f"What is {x} - {y}?", f"{x} - {y}", f"{x}-{y}=?", f"What is {x} minus {y}?", f"Calculate {x} - {y}.", f"Subtract {y} from {x}.",
                              f"How much is {x} - {y}?", f"How much is {x} minus {y}?", f"Compute {x} - {y}."]), f"{x} - {y} = {x - y}"
        if k < 0.82:
            x, y = self.r.randrange(13), self.r.randrange(13)
            return self.pick([f"What is {x} * {y}?", f"{x} * {y}", f"What is {x} x {y}?", f"What is {x} times {y}?", f"Calculate {x} * {y}.", f"Multiply {x} by {y}.",
                              f"Multiply {x} and {y}.", f"How much is {x} * {y}?", f"How much is {x} times {y}?", f"Compute {x} * {y}."]), f"{x} * {y} = {x * y}"
        if k < 0.88:
            y, z = self.r.randrange(1, 11), self.r.randrange(1, 11)
            x = y * z
            return self.pick([f"What is {x} / {y}?", f"What is {x} divided by {y}?", f"Divide {x} by {y}.", f"How much is {x} / {y}?"]), f"{x} / {y} = {z}"
        x, y = self.r.randrange(2, 13), self.r.randrange(2, 13)
        t = self.pick("apples books coins stones cups hats keys letters".split())
        nm = self.pick(NAMES)
        if k < 0.95:
            return self.pick([f"I have {x} {t} and get {y} more. How many {t} do I have?", f"I have {x} {t} and buy {y} more. How many {t} do I have now?"]), \
                f"{x} + {y} = {x + y}. You have {x + y} {t}."
        x, y = max(x, y) + 1, min(x, y)
        return f"{nm} has {x} {t} and gives away {y}. How many {t} does {nm} have?", f"{x} - {y} = {x - y}. {nm} has {x - y} {t}."

    def listing(self):
        c = self.pick(list(CATS))
        items = CATS[c]
        n = self.pick([2, 3, 3, 3, 4, 4, 5, 5, 6])
        o = self.r.randrange(len(items))
        xs = [items[(o + i) % len(items)] for i in range(n)]
        w = NUM[n] if self.r.random() < 0.75 else str(n)
        style = self.r.random()
        if style < 0.6:
            return self.pick([f"List {w} {c}.", f"Name {w} {c}.", f"Tell me {w} {c}.", f"Give me {w} {c}.", f"Can you name {w} {c}?", f"I need {w} {c}.",
                              f"Write {w} {c}."]), f"Here are {NUM[n]} {c}: {join(xs)}."
        if style < 0.75:
            return self.pick([f"Give me a numbered list of {w} {c}.", f"Make a numbered list of {w} {c}.", f"Write a numbered list of {w} {c}."]), \
                "\n".join(f"{i + 1}. {x}" for i, x in enumerate(xs))
        if style < 0.88:
            return self.pick([f"Give me a bullet list of {w} {c}.", f"Make a bullet list of {w} {c}.", f"List {w} {c} as bullets."]), "\n".join("- " + x for x in xs)
        s = SING[c]
        return self.pick([f"Name {a(s)}.", f"Tell me {a(s)}.", f"Give me {a(s)}."]), f"{a(xs[0])[0].upper()}{a(xs[0])[1:]} is {a(s)}." if c in ISA else f"{xs[0][0].upper()}{xs[0][1:]} is {a(s)}."

    def facts(self):
        k = self.r.randrange(10)
        if k <= 2:
            x = self.pick(list(OPP))
            y = OPP[x]
            if self.r.random() < 0.3 and list(OPP.values()).count(y) == 1 and y not in OPP:
                x, y = y, x
            return self.pick([f"What is the opposite of {x}?", f"Tell me the opposite of {x}.", f"Which word is the opposite of {x}?", f"Name the opposite of {x}.",
                              f"opposite of {x}?", f"Give me the opposite of {x}."]), f"The opposite of {x} is {y}."
        if k <= 4:
            x = self.pick(list(COLOR))
            return self.pick([f"What color is {x}?", f"What is the color of {x}?", f"Which color does {x} have?", f"Tell me the color of {x}."]), \
                f"{x[0].upper()}{x[1:]} is {COLOR[x]}."
        if k == 5:
            x = self.pick(list(SOUND))
            return self.pick([f"What sound does {a(x)} make?", f"What does {a(x)} say?", f"Which sound does {a(x)} make?"]), f"{a(x)[0].upper()}{a(x)[1:]} says {SOUND[x]}."
        if k == 6:
            x = self.pick(list(BABY))
            return self.pick([f"What is a baby {x} called?", f"What do you call a baby {x}?", f"How do you call a young {x}?"]), f"A baby {x} is called {a(BABY[x])}."
        if k == 7:
            c = self.pick(ISA)
            x, s = self.pick(CATS[c]), SING[c]
            X = a(x)[0].upper() + a(x)[1:]
            if self.r.random() < 0.5:
                return self.pick([f"What is {a(x)}?", f"What kind of thing is {a(x)}?"]), f"{X} is {a(s)}."
            d = c if self.r.random() < 0.45 else self.pick(ISA)
            if d == c or {c, d} == {"animals", "birds"}:
                return f"Is {a(x)} {a(s)}?", f"Yes, {a(x)} is {a(s)}."
            return f"Is {a(x)} {a(SING[d])}?", f"No, {a(x)} is {a(s)}."
        if k == 8:
            return self.pick(YESNO)
        x = self.pick(list(DEFS))
        return self.pick([f"What is {x}?", f"What does the word {x.split(' ', 1)[1] if x.startswith(('a ', 'an ', 'the ')) else x} mean?", f"Explain what {x} is.",
                          f"Tell me what {x} is."]), DEFS[x]

    def spell(self):
        w = self.pick(SPELL)
        k = self.r.random()
        if k < 0.45:
            return self.pick([f"Spell the word {w}.", f"Spell {w}.", f"How do you spell {w}?", f"How is {w} spelled?"]), f"{w} is spelled {'-'.join(w)}."
        if k < 0.6:
            return self.pick([f"How many letters does {w} have?", f"How many letters are in {w}?", f"How many letters does the word {w} have?"]), f"The word {w} has {len(w)} letters."
        if k < 0.75:
            return self.pick([f"What is the first letter of {w}?", f"Which letter does {w} start with?"]), f"The first letter of {w} is {w[0]}."
        if k < 0.85:
            return self.pick([f"What is the last letter of {w}?", f"Which letter does {w} end with?"]), f"The last letter of {w} is {w[-1]}."
        return self.pick([f"Write {w} in capital letters.", f"Write the word {w} in uppercase.", f"Put {w} in uppercase."]), w.upper()

    def phrase(self, lo=1, hi=8):
        ws = [self.pick(WORDS) for _ in range(self.r.randrange(lo, hi + 1))]
        k = self.r.random()
        if k < 0.25:
            ws = ["the", self.pick(ADJ), self.pick(HERO), self.pick(["runs", "sleeps", "sings", "waits", "jumps"]), self.pick(PLACE)]
        elif k < 0.33:
            ws[self.r.randrange(len(ws))] = str(self.r.randrange(1000))
        elif k < 0.43:
            ws[self.r.randrange(len(ws))] = "".join(self.pick("abcdefghijklmnopqrstuvwxyz") for _ in range(self.r.randrange(2, 6)))
        elif k < 0.6:
            ws[self.r.randrange(len(ws))] = self.pick(NAMES)
        s = " ".join(ws)
        if self.r.random() < 0.4:
            s = s[0].upper() + s[1:] + self.pick([".", ".", "!"])
        return s

    def echo(self):
        s = self.phrase()
        k = self.r.random()
        if k < 0.75:
            return self.pick([f"Repeat after me: {s}", f"Repeat this: {s}", f"Say this: {s}", f"Please repeat: {s}", f"Copy this text: {s}", f"Echo: {s}",
                              f"Repeat the following: {s}", f"Say exactly this: {s}", f'Repeat "{s}"', f'Say "{s}"']), s
        ws = [self.pick(WORDS) for _ in range(self.r.randrange(2, 6))]
        if k < 0.85:
            return f"What is the first word of: {' '.join(ws)}", f"The first word is {ws[0]}."
        if k < 0.95:
            return f"What is the last word of: {' '.join(ws)}", f"The last word is {ws[-1]}."
        return f"Say {ws[0]} three times.", f"{ws[0]} {ws[0]} {ws[0]}"

    def unknown(self):
        q, t, xs = self.pick(UNKNOWN)
        x = self.pick(xs.split("/") if "/" in xs else xs.split())
        if x in ("steam", "light"):
            x = {"steam": "steam engine", "light": "light bulb"}[x]
        elif x in ("engine", "bulb"):
            x = "clock"
        q = q.format(x=x)
        if q.startswith(("Who", "When", "What", "How")) and self.r.random() < 0.3:
            q = "Do you know " + t.format(x=x) + "?" if not t.startswith("much") else f"Tell me about {x}."
        return q, (DUNNO[0] if self.r.random() < 0.8 else DUNNO[1]).format(t=t.format(x=x))

    # ---- stories ----
    def story(self, hero=None, name=None, n_extra=0):
        r = self.r
        h, g = hero or self.pick(HERO), self.pick(HERO[:19])
        while g == h:
            g = self.pick(HERO[:19])
        ad, pl, th = self.pick(ADJ), self.pick(PLACE), self.pick(THING)
        named = f" named {name}" if name else ""
        H = name or f"The {h}"
        Hl = name or f"the {h}"
        he, his = ("she", "her") if h == "girl" else ("he", "his") if h in ("boy", "king") else ("it", "its")
        he, his = ("she", "her") if name in ("Ada", "Clara", "Emma", "Grace", "Iris", "Kate", "Maria", "Olga", "Rosa", "Tina", "Anna", "Dora", "Eva", "Julia", "Lena", "Nina",
                                             "Ruth", "Sara", "Alice", "Luna", "Mia") else ("he", "his") if name else (he, his)
        He = he.capitalize()
        s = [f"Once upon a time, {a(ad)} {h}{named} lived {pl}."]
        p = r.randrange(4)
        mid = [self.pick(["The day was warm and the sky was blue.", "The wind was soft and the birds were singing.", "It had rained all night and the air was fresh."]),
               self.pick([f"On the way, {he} sang a little song.", f"On the way, {he} crossed a small bridge.", f"On the way, {he} stopped to drink some water."])]
        if p == 0:
            s += [f"One day, {Hl} found {th} under a tree.", f"{He} wanted to know whose it was.", *mid[:n_extra],
                  f"{H} asked {a(g)}, and the {g} said, \"It is mine, I lost it yesterday!\"",
                  f"{H} gave {the(th)} back, and the {g} was very {self.pick(FEEL)}.", f"From that day on, they were good friends."]
        elif p == 1:
            s += [f"One day, {Hl} wanted to see the other side of the hill.", *mid[:n_extra], f"On the path, {he} met {a(g)} who was lost.",
                  f"\"Do not be afraid,\" said {Hl}, \"we will find the way together.\"", f"They walked all day, and in the evening they saw the lights of home.",
                  f"The {g} said thank you, and {Hl} was {self.pick(FEEL)}."]
        elif p == 2:
            s += [f"One night, a big storm came and {Hl} could not sleep.", *mid[1:1 + n_extra], f"{He} heard a small voice outside. It was {a(g)}, cold and wet.",
                  f"{H} opened the door and made some warm tea.", f"They told each other stories until the storm was over.",
                  f"In the morning, the {g} gave {Hl} {th} as a gift."]
        else:
            s += [f"Every day, {Hl} dreamed of {th}.", f"{He} looked for it everywhere, but could not find it.", *mid[:n_extra],
                  f"Then a wise {g} said, \"What you look for is close to home.\"", f"{H} went home and found {the(th)} beside the door.",
                  f"{He} laughed and shared {his} joy with the {g}."]
        return s

    def storyq(self):
        h = self.pick(HERO)
        nm = self.pick(NAMES) if self.r.random() < 0.3 else None
        k = self.r.random()
        x = a(h) + (f" named {nm}" if nm else "")
        if k < 0.1:
            q = self.pick(["Tell me a story.", "Write a story.", "I want to hear a story.", "Tell me a short story.", "Can you tell me a story?"])
            s = self.story(None, None)
        elif k < 0.16:
            q = self.pick(["Tell me a long story.", f"Tell me a long story about {x}.", f"Write a long story about {x}."])
            h2 = h if x in q else None
            t = " ".join(self.story(h2, nm if h2 else None, 2)) + "\n\n" + " ".join(["The next year, everything was new."] + self.story(h2, None, 2)[1:])
            return q, t + " The end."
        else:
            q = self.pick([f"Tell me a story about {x}.", f"Write a short story about {x}.", f"Tell me a short story about {x}.", f"Write a story about {x}.",
                           f"Can you tell me a story about {x}?", f"I want to hear a story about {x}.", f"Make up a story about {x}."])
            s = self.story(h, nm)
        return q, " ".join(s) + " The end."

    def poem(self):
        x = self.pick(list(POEM))
        return self.pick([f"Write a poem about {x}.", f"Write a short poem about {x}.", f"Tell me a poem about {x}.", f"Can you write a poem about {x}?",
                          f"I want a poem about {x}."]), "\n".join(POEM[x])

    # ---- JSON ----
    def field(self):
        k = self.pick(["name", "age", "city", "color", "animal", "price", "count", "active", "country", "id", "title", "day"])
        v = {"name": lambda: self.pick(NAMES), "age": lambda: self.r.randrange(1, 100), "city": lambda: self.pick(CATS["cities"]),
             "color": lambda: self.pick(CATS["colors"]), "animal": lambda: self.pick(CATS["animals"]), "price": lambda: self.r.randrange(1, 100),
             "count": lambda: self.r.randrange(1, 50), "active": lambda: self.r.random() < 0.5, "country": lambda: self.pick(CATS["countries"]),
             "id": lambda: self.r.randrange(1, 1000), "title": lambda: self.pick(WORDS), "day": lambda: self.pick(DAYS)}[k]()
        return k, v

    def jsonq(self):
        k = self.r.random()
        if k < 0.68:
            obj = {}
            for _ in range(self.pick([1, 2, 2, 2, 3, 3, 4])):
                f, v = self.field()
                obj[f] = v
            sep = self.pick([" ", " ", " ", "="]) if k < 0.6 else ": "
            parts = [f"{f}{sep}{json.dumps(v) if isinstance(v, bool) else v}" for f, v in obj.items()]
            txt = join(parts) if self.r.random() < 0.7 else ", ".join(parts)
            return self.pick([f"Give me a JSON object with {txt}.", f"Return a JSON object with {txt}.", f"Write a JSON object with {txt}.", f"Make a JSON object: {txt}",
                              f"Create JSON with {txt}.", f"Return JSON: {txt}", f"I need a JSON object with {txt}.", f"JSON with {txt}"]), json.dumps(obj)
        if k < 0.84:
            n, g, c = self.pick(NAMES), self.r.randrange(1, 100), self.pick(CATS["cities"])
            q, o = self.pick([(f"Write JSON for a person named {n} who is {g} years old.", {"name": n, "age": g}),
                              (f"Write JSON for a person named {n} who lives in {c}.", {"name": n, "city": c}),
                              (f"{n} is {g} years old and lives in {c}. Write this as JSON.", {"name": n, "age": g, "city": c}),
                              (f"Turn this into JSON: {n} is {g} years old.", {"name": n, "age": g}),
                              (f"Turn this into JSON: {n} lives in {c}.", {"name": n, "city": c})])
            return q, json.dumps(o)
        c = self.pick(list(CATS))
        n = self.pick([2, 3, 3, 4, 5])
        o = self.r.randrange(len(CATS[c]))
        xs = [CATS[c][(o + i) % len(CATS[c])] for i in range(n)]
        if k < 0.94:
            return self.pick([f"Give me a JSON list of {NUM[n]} {c}.", f"Give me a JSON array of {NUM[n]} {c}.", f"Write {NUM[n]} {c} as a JSON array.",
                              f"Return a JSON array with {NUM[n]} {c}."]), json.dumps(xs)
        return self.pick([f"Give me a JSON object with a list of {NUM[n]} {c}.", f"Return a JSON object with {NUM[n]} {c}."]), json.dumps({c: xs})

    # ---- tools ----
    def tool(self, kind):
        r = self.r
        city = lambda: self.pick(CATS["cities"] + list(CAPITALS.values())[:30])
        num = lambda: r.randrange(1, 100)
        pn = self.pick(["city", "city", "location", "place"])
        if kind == "weather":
            n, d = self.pick(["get_weather", "get_weather", "get_current_weather", "weather", "weather_lookup", "fetch_weather"]), self.pick(["Get the weather in a city.", "Current weather for a city.", "Get the current weather."])
            c = city()
            deg, sky = r.randrange(-5, 36), self.pick(["sunny", "cloudy", "rainy", "windy", "clear", "snowy"])
            ps, q, args = {pn: "string"}, self.pick([f"What is the weather in {c}?", f"How is the weather in {c}?", f"Is it warm in {c}?", f"Tell me the weather in {c}.",
                                                     f"What's the weather like in {c}?", f"Weather in {c}?", f"What is the weather like in {c} today?"]), {pn: c}
            res, ans = {"temperature": deg, "sky": sky}, f"It is {sky} in {c}, and the temperature is {deg} degrees."
            if r.random() < 0.4:
                res = {pn: c, **res}
            if r.random() < 0.25:
                res = f"{sky}, {deg} degrees"
        elif kind == "time":
            n, d = self.pick(["get_time", "get_time", "current_time", "time_in", "get_current_time"]), self.pick(["Get the time in a city.", "Current local time of a city."])
            c = city()
            t = f"{r.randrange(24):02d}:{r.randrange(60):02d}"
            ps, q, args = {pn: "string"}, self.pick([f"What time is it in {c}?", f"Tell me the time in {c}.", f"What is the time in {c}?", f"Time in {c}?"]), {pn: c}
            res, ans = {"time": t}, f"It is {t} in {c}."
        elif kind in ("add", "multiply"):
            p, v = self.pick([("a", "b"), ("a", "b"), ("x", "y")])
            x, y = num(), num()
            if kind == "add":
                n, d = self.pick(["add", "add_numbers", "sum"]), self.pick(["Add two numbers.", "The sum of two numbers."])
                q, z, o = self.pick([f"What is {x} + {y}?", f"Add {x} and {y}.", f"What is {x} plus {y}?", f"Calculate {x} + {y}."]), x + y, "+"
            else:
                n, d = self.pick(["multiply", "multiply_numbers", "product"]), self.pick(["Multiply two numbers.", "The product of two numbers."])
                q, z, o = self.pick([f"What is {x} * {y}?", f"Multiply {x} and {y}.", f"What is {x} times {y}?", f"Calculate {x} * {y}."]), x * y, "*"
            ps, args, res, ans = {p: "number", v: "number"}, {p: x, v: y}, {"result": z}, f"{x} {o} {y} = {z}"
            if r.random() < 0.4:
                res = str(z)
        elif kind == "search":
            n, d, p = self.pick(["search", "search", "web_search", "search_web", "find"]), self.pick(["Search the web.", "Search for a text."]), self.pick(["query", "query", "q", "text"])
            s = " ".join(self.pick(WORDS) for _ in range(r.randrange(1, 4)))
            t = self.pick(WORDS)
            ps, q, args = {p: "string"}, self.pick([f"Search for {s}.", f"Search the web for {s}.", f"Find something about {s}.", f"Look up {s}."]), {p: s}
            res, ans = {"results": [f"All about {s}"]}, f"I found this: All about {s}."
        elif kind == "timer":
            n, d, p = self.pick(["set_timer", "start_timer", "timer"]), self.pick(["Set a timer.", "Start a timer."]), self.pick(["minutes", "minutes", "duration"])
            m = r.randrange(2, 60)
            ps, q, args = {p: "integer"}, self.pick([f"Set a timer for {m} minutes.", f"Start a timer for {m} minutes.", f"Wake me in {m} minutes."]), {p: m}
            res, ans = {"status": "ok"}, f"The timer is set for {m} minutes."
        elif kind == "message":
            n, d = self.pick(["send_message", "send_mail", "message"]), self.pick(["Send a message.", "Send a text to a person."])
            w, s, p = self.pick(NAMES), " ".join(self.pick(WORDS) for _ in range(r.randrange(1, 4))), self.pick(["to", "to", "name"])
            ps, q, args = {p: "string", "text": "string"}, self.pick([f"Send {w} the message: {s}", f"Send a message to {w}: {s}", f"Tell {w}: {s}"]), {p: w, "text": s}
            res, ans = {"status": "sent"}, f"I sent the message to {w}."
        else:
            n, d, p = self.pick(["get_price", "price_of", "lookup_price"]), self.pick(["Get the price of a thing.", "Look up a price."]), self.pick(["item", "item", "product"])
            x, z = self.pick(CATS["fruits"] + CATS["tools"] + CATS["flowers"]), r.randrange(1, 90)
            ps, q, args = {p: "string"}, self.pick([f"What is the price of {a(x)}?", f"How much does {a(x)} cost?", f"What does {a(x)} cost?"]), {p: x}
            res, ans = {"price": z}, f"The price of {a(x)} is {z}."
        props = {}
        desc = r.random() < 0.25
        for k, t in ps.items():
            props[k] = {"type": t if r.random() < 0.8 or t == "string" else "integer"}
            if desc:
                props[k]["description"] = f"The {k}"
        fn = {"name": n, "description": d, "parameters": {"type": "object", "properties": props, "required": list(ps)}}
        if r.random() < 0.15:
            del fn["description"]
        if r.random() < 0.15:
            del fn["parameters"]["required"]
        return {"type": "function", "function": fn}, q, args, res, ans

    KINDS = ["weather", "weather", "time", "add", "multiply", "search", "timer", "message", "price"]

    def tools(self):
        r = self.r
        kinds = list(dict.fromkeys(self.pick(self.KINDS) for _ in range(self.pick([1, 1, 1, 2, 2, 3]))))
        made = [self.tool(k) for k in kinds]
        tools = [m[0] for m in made]
        msgs = []
        for _ in range(self.pick([1, 1, 1, 2])):
            if r.random() < 0.15:
                u, v = self.pick([self.chat, self.spill, self.capital, self.days])()
                msgs += [{"role": "user", "content": u}, {"role": "assistant", "content": v}]
                continue
            i = r.randrange(len(made))
            q, args, res, ans = self.again(kinds[i], made[i])
            name = tools[i]["function"]["name"]
            calls = [(args, res)]
            if kinds[i] in ("weather", "time") and r.random() < 0.12:
                key = next(iter(args))
                c2 = self.pick(CATS["cities"])
                if c2 != args[key]:
                    c1 = args[key]
                    res1 = res
                    _, _, _, res2, ans2 = self.tool(kinds[i])
                    if isinstance(res1, dict) and isinstance(res2, dict) and not set(res1) & {"city", "location", "place"} and not set(res2) & {"city", "location", "place"}:
                        calls = [({key: c1}, res1), ({key: c2}, res2)]
                        if kinds[i] == "weather":
                            q = f"What is the weather in {c1} and {c2}?"
                            ans = f"It is {res1['sky']} in {c1}, and the temperature is {res1['temperature']} degrees. It is {res2['sky']} in {c2}, and the temperature is {res2['temperature']} degrees."
                        else:
                            q = f"What time is it in {c1} and {c2}?"
                            ans = f"It is {res1['time']} in {c1}. It is {res2['time']} in {c2}."
            msgs += [{"role": "user", "content": q},
                     {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": c[0]}} for c in calls]}]
            msgs += [{"role": "tool", "content": c[1] if isinstance(c[1], str) else json.dumps(c[1])} for c in calls]
            msgs += [{"role": "assistant", "content": ans}]
        return {"tools": tools, "messages": msgs}

    def again(self, kind, made):
        """A fresh request for a tool that tool() drew before: the same name and parameters."""
        schema = lambda t: (t["function"]["name"], list(t["function"]["parameters"]["properties"]))
        for _ in range(40):
            t, *rest = self.tool(kind)
            if schema(t) == schema(made[0]):
                return rest
        return made[1:]

    # Two tools of these kinds answer the same request, so that no choice between them is right.
    SAME = [{"calculate", "add"}, {"calculate", "multiply"}]

    def offered(self):
        """One to five tools as (tool, a function that draws a request for it). Many stand beside one that is easily taken for them."""
        r = self.r
        kinds, offers = [], []
        n = self.pick([1, 1, 2, 2, 2, 2, 3, 3, 4, 5])
        for _ in range(n):
            if kinds and r.random() < 0.5:
                kind = pebble_tools.alike(r, kinds[0])
            else:
                kind = self.pick(self.KINDS) if r.random() < 0.25 else pebble_tools.kind_of(r)
            name = kind if isinstance(kind, str) else kind[0][0]
            names = [k if isinstance(k, str) else k[0][0] for k in kinds]
            if name in names or any({name, k} in self.SAME for k in names):
                continue
            if isinstance(kind, str):
                made = self.tool(kind)
                offer = (made[0], lambda kind=kind, made=made: self.again(kind, made))
            else:
                tool, keys = pebble_tools.schema(r, kind)
                offer = (tool, lambda kind=kind, keys=keys: pebble_tools.ask(r, kind, keys))
            if all(offer[0]["function"]["name"] != t["function"]["name"] for t, _ in offers):
                kinds.append(kind)
                offers.append(offer)
        r.shuffle(offers)
        return offers

    def more_tools(self):
        """A chat with offered() tools: one of them is wanted, two are, or none is; then the answer is that of a chat without tools."""
        r = self.r
        offers = self.offered()
        msgs = []
        for _ in range(self.pick([1, 1, 2, 2, 3, 4])):
            if r.random() < 0.16:
                u, v = self.pick([self.chat, self.chat, self.spill, self.spill, self.capital, self.facts, self.days, self.months, self.listing])()
                msgs += [{"role": "user", "content": u}, {"role": "assistant", "content": v}]
                continue
            wanted = [self.pick(offers) for _ in range(2 if r.random() < 0.08 else 1)]
            asked = [self.request(draw) for _, draw in wanted]
            u = " ".join(a[0] for a in asked)
            k = r.random()
            if len(asked) == 1 and k < 0.08:
                u = u[0].lower() + u[1:]
            elif len(asked) == 1 and k < 0.16:
                u = u.rstrip(".?")
            calls = [{"type": "function", "function": {"name": t["function"]["name"], "arguments": a[1]}} for (t, _), a in zip(wanted, asked)]
            msgs += [{"role": "user", "content": u}, {"role": "assistant", "content": "", "tool_calls": calls}]
            msgs += [{"role": "tool", "content": a[2] if isinstance(a[2], str) else json.dumps(a[2])} for a in asked]
            msgs += [{"role": "assistant", "content": " ".join(a[3] for a in asked)}]
        return {"tools": [t for t, _ in offers], "messages": msgs}

    def form(self):
        """A request whose answer is a JSON object in the form that the system's message gives: what a tool's arguments would be."""
        tool, draw = self.pick(self.offered())
        schema = tool["function"]["parameters"]
        msgs = [{"role": "system", "content": self.pick(FORMS).replace("{}", json.dumps(schema))}]
        for _ in range(self.pick([1, 1, 2, 3])):
            asked = self.request(draw)
            msgs += [{"role": "user", "content": asked[0]}, {"role": "assistant", "content": json.dumps(asked[1])}]
        return {"messages": msgs}

    def request(self, draw):
        """A request that is not held out, by itself and not only as a part of a longer one."""
        while True:
            asked = draw()
            if not held_out(asked[0]):
                return asked

    # ---- dialogues with memory and follow-ups ----
    def followup(self):
        k = self.r.randrange(8)
        if k <= 1:
            n = self.pick(NAMES)
            u, v = self.exchange()
            m = [(self.pick([f"My name is {n}.", f"Hello, I am {n}.", f"Hi, my name is {n}.", f"Call me {n}.", f"I am {n}."]), f"Nice to meet you, {n}! How can I help you?")]
            if self.r.random() < 0.6:
                m += [(u, v)]
            m += [(self.pick(["What is my name?", "Do you remember my name?", "Who am I?", "What's my name?", "Do you know my name?"]), f"Your name is {n}.")]
        elif k == 2:
            cs = self.r.sample(sorted(set(CAPITALS) - THE), 3)
            m = [(f"What is the capital of {cs[0]}?", f"The capital of {cs[0]} is {CAPITALS[cs[0]]}.")]
            m += [(self.pick([f"And {c}?", f"What about {c}?", f"And of {c}?", f"And the capital of {c}?"]), f"The capital of {c} is {CAPITALS[c]}.") for c in cs[1:]]
        elif k == 3:
            i = self.r.randrange(7)
            m = [(f"What day comes after {DAYS[i]}?", f"{DAYS[(i + 1) % 7]} comes after {DAYS[i]}."),
                 (self.pick(["And after that?", "And then?", "What comes next?"]), f"{DAYS[(i + 2) % 7]} comes after {DAYS[(i + 1) % 7]}.")]
        elif k == 4:
            x, y, z = self.r.randrange(30), self.r.randrange(30), self.r.randrange(1, 20)
            m = [(f"What is {x} + {y}?", f"{x} + {y} = {x + y}"), (self.pick([f"Now add {z}.", f"And plus {z}?", f"Add {z} to that."]), f"{x + y} + {z} = {x + y + z}")]
        elif k == 5:
            x, c = self.pick([("color", "colors"), ("animal", "animals"), ("city", "cities"), ("fruit", "fruits"), ("flower", "flowers")])
            v = self.pick(CATS[c])
            m = [(self.pick([f"My favorite {x} is {v}.", f"I like the {x} {v} best."]), f"That is a good choice! I like {v} too.")]
            if self.r.random() < 0.6:
                m += [self.exchange()]
            m += [(self.pick([f"What is my favorite {x}?", f"Which {x} do I like best?", f"Do you remember my favorite {x}?"]), f"Your favorite {x} is {v}.")]
        elif k == 6:
            j, l = self.r.sample(JOKES, 2)
            m = [(self.pick(CHAT[7][0]), j), (self.pick(["Another one.", "One more!", "Tell me another one.", "Another joke, please."]), l)]
        else:
            c = self.pick(list(CATS))
            o, n = self.r.randrange(len(CATS[c])), self.pick([2, 3])
            xs = [CATS[c][(o + i) % len(CATS[c])] for i in range(2 * n)]
            m = [(f"Name {NUM[n]} {c}.", f"Here are {NUM[n]} {c}: {join(xs[:n])}."), (self.pick([f"And {NUM[n]} more?", f"Name {NUM[n]} more.", f"{NUM[n].capitalize()} more, please."]),
                                                                               f"Here are {NUM[n]} more {c}: {join(xs[n:])}.")]
        return m

    FAM = [("chat", 8), ("spill", 15), ("capital", 12), ("days", 5), ("months", 6), ("count", 9), ("arith", 24), ("listing", 9), ("facts", 14), ("spell", 5),
           ("echo", 8), ("unknown", 7), ("storyq", 9), ("poem", 2), ("jsonq", 12)]
    NOAUG = {"jsonq", "echo", "spell", "storyq"}

    def exchange(self):
        while True:
            f = self.r.choices([n for n, _ in self.FAM], [w for _, w in self.FAM])[0]
            u, v = getattr(self, f)()
            k = self.r.random()
            if f not in self.NOAUG:
                if k < 0.10:
                    u = u.lower()
                elif k < 0.18:
                    u = u.rstrip(".?!")
                elif k < 0.22:
                    u = "Please " + u[0].lower() + u[1:] if u.split()[0] in ("Tell", "Name", "List", "Count", "Write", "Give", "Explain", "Calculate", "Add", "Multiply") else u
            elif k < 0.06:
                u = u.rstrip(".")
            if not held_out(u):
                return u, v

    SYS = ["You are a helpful assistant.", "You are Pebble, a small model.", "You are a helpful assistant. Answer briefly.", "Be brief.", "Answer in one sentence.",
           "You are a friendly assistant.", "You are Pebble, the small model inside Spillway.", "You answer questions about Spillway.", "Be polite and short."]

    def doc(self, long=False):
        r = self.r
        while True:
            d = self._doc(long)
            if "text" in d or not any(m["role"] == "user" and held_out(m["content"]) for m in d["messages"]):
                return d

    def _doc(self, long):
        r = self.r
        k = r.random()
        if long:
            pairs = []
            word = self.pick(WORDS)
            for _ in range(r.randrange(16, 44)):
                pairs += [self.exchange()] if r.random() < 0.8 else self.followup()
            msgs = []
            if r.random() < 0.6:
                msgs = [{"role": "system", "content": f"The secret word is {word}."}]
                for _ in range(3):
                    pairs.insert(r.randrange(len(pairs)), (self.pick(["What is the secret word?", "Tell me the secret word."]), f"The secret word is {word}."))
            return {"messages": msgs + [m for u, v in pairs for m in ({"role": "user", "content": u}, {"role": "assistant", "content": v})]}
        if k < 0.04:
            t = " ".join(self.story(None, self.pick(NAMES) if r.random() < 0.3 else None, r.randrange(3))) + " The end.\n"
            return {"text": t}
        if k < 0.07:
            out = []
            for _ in range(r.randrange(2, 6)):
                f = self.pick([self.capital, self.days, self.months, self.arith, self.facts, self.spill, self.listing])
                u, v = f()
                if not held_out(u):
                    out.append(v)
            return {"text": " ".join(out) + "\n"}
        if k < 0.08:
            return {"text": "\n".join(f"Q: {u}\nA: {v}" for u, v in [self.exchange() for _ in range(r.randrange(1, 4))]) + "\n"}
        if k < 0.55:
            if k < 0.12:
                d = self.tools()
            elif k < 0.48:
                d = self.more_tools()
            else:
                return self.form()
            if r.random() < 0.3:
                d["messages"].insert(0, {"role": "system", "content": self.pick(self.SYS)})
            return d
        msgs = []
        if k < 0.61:
            pairs = self.followup()
            if r.random() < 0.3:
                pairs += [self.exchange()]
        elif k < 0.625:
            w = self.pick(WORDS + NAMES)
            msgs = [{"role": "system", "content": f"The secret word is {w}."}]
            pairs = [self.exchange() for _ in range(r.randrange(0, 2))] + [(self.pick(["What is the secret word?", "Tell me the secret word.", "Do you know the secret word?"]), f"The secret word is {w}.")]
        else:
            pairs = [self.exchange() for _ in range(self.pick([1, 1, 1, 1, 2, 2, 3]))]
        if not msgs and r.random() < 0.2:
            msgs = [{"role": "system", "content": self.pick(self.SYS)}]
        return {"messages": msgs + [m for u, v in pairs for m in ({"role": "user", "content": u}, {"role": "assistant", "content": v})]}


if __name__ == "__main__":
    g = Gen(1)
    for _ in range(40):
        print(json.dumps(g.doc(), ensure_ascii=False))
