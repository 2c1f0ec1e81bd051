"""pebble_tools: kinds of tools for pebble_data, beside those that it draws itself.

A kind is a row of KINDS, or a row that by_number() or by_name() makes: names, descriptions, parameters, phrasings of the request, the result and
what is said of it. A parameter is (its names, its type, what draws a value, a choice of words where the schema has an enum). In phrasings and
answers {0} is the first parameter's value. schema(r, kind) draws the tool, ask(r, kind, names) a request for it with the arguments, the result
and the answer. alike(r, name) names a kind that is easily taken for another: the two are offered together, so that the choice is learned.
"""
CITIES = "Paris London Rome Berlin Madrid Vienna Tokyo Oslo Lisbon Cairo Athens Dublin Prague Warsaw Lima Bogota Nairobi Ottawa Sydney Bern Zurich Milan Munich".split()
PEOPLE = ("Ada Ben Clara David Emma Felix Grace Hugo Iris Jack Kate Leo Maria Noah Olga Paul Rosa Sam Tina Victor Anna Bob Carl Dora Eva Frank Ivan Julia Lena Max "
          "Nina Oscar Peter Ruth Sara Tom Alice Luna Mia Otto").split()
THINGS = ("apple banana pear plum lemon carrot potato onion hammer saw lamp chair table book pen cup spoon hat coat shoe bag bottle brush candle clock mirror pillow "
          "blanket rope bucket ladder kettle pan plate knife map ticket stamp umbrella radio guitar piano violin").split()
ROOMS = "kitchen bedroom bathroom office hall garage garden basement attic library studio cellar".split()
TONGUES = "French German Spanish Italian English Dutch Polish Greek Finnish Danish Swedish Turkish Japanese Arabic".split()
COLORS = "red blue green yellow orange purple black white pink brown gray".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COINS = "EUR USD GBP JPY CHF SEK NOK CAD AUD".split()
STOCKS = "ABC XYZ KLM QRS TUV RIV DAM LAK SEA SUN".split()
TOPICS = "sports science music weather politics health art history travel food space trains birds".split()
SONGS = "Blue River|Quiet Night|Summer Rain|Old House|Silver Moon|Green Hills|Stone Bridge|Winter Light|Golden Field|Happy Days|Deep Sea|Morning Song".split("|")
DISHES = "pizza soup salad pasta bread cake rice curry stew pie".split()
LEVELS = "low medium high".split()
WORDS = ("apple boat bread bridge candle castle chair city cloud cup door dream field fire fish flower forest garden glass hand hat hill horse house island key lake "
         "lamp leaf letter light moon morning mountain music night ocean paper pencil plane queen rain river road rock roof school sea ship shoe sky snow song spoon star "
         "stone storm street sugar summer sun table tiger tower train tree valley village wall water wave wind window winter wolf blue small big old new quiet happy "
         "brave little warm cold bright").split()
ENDS = "txt md csv json log py html".split()
FOLDERS = "docs src data home tmp logs images reports letters backup files work archive".split()


def invented(r):
    """A word that no list has: what a user names is copied, not remembered."""
    return "".join("bdfgklmnprstvz"[r.randrange(14)] + "aeiou"[r.randrange(5)] for _ in range(r.randrange(2, 4))) + ["", "n", "r", "s"][r.randrange(4)]


def a_word(r):
    return invented(r) if r.random() < 0.12 else WORDS[r.randrange(len(WORDS))]


def one_of(words):
    return lambda r: words[r.randrange(len(words))]


def name_of(words):
    """Mostly a name of the list, at times an invented one."""
    return lambda r: invented(r).capitalize() if r.random() < 0.1 else words[r.randrange(len(words))]


def number(low, high):
    return lambda r: r.randrange(low, high)


def tenth(low, high):
    return lambda r: r.randrange(low * 10, high * 10) / 10


def words(low, high):
    return lambda r: " ".join(a_word(r) for _ in range(r.randrange(low, high)))


def clock(r):
    return "%02d:%02d" % (r.randrange(24), r.randrange(60))


def path(r):
    folders = [FOLDERS[r.randrange(len(FOLDERS))] if r.random() < 0.3 else a_word(r) for _ in range([0, 1, 1, 2][r.randrange(4)])]
    return "/".join(folders + [a_word(r) + "." + ENDS[r.randrange(len(ENDS))]])


def mail(r):
    return PEOPLE[r.randrange(len(PEOPLE))].lower() + "@" + a_word(r) + "." + ["org", "com", "net"][r.randrange(3)]


def date(r):
    return "2026-%02d-%02d" % (r.randrange(1, 13), r.randrange(1, 29))


def sum_text(r):
    return "%d %s %d" % (r.randrange(1, 100), "+-*/"[r.randrange(4)], r.randrange(1, 100))


city, person, thing, room = name_of(CITIES), name_of(PEOPLE), one_of(THINGS), one_of(ROOMS)

OK = [({"status": "ok"}, ""), ({"ok": True}, ""), ("done", "")]

# names | descriptions | parameters | phrasings | results with what the answer says of them, or OK | answer
KINDS = [
    (["set_alarm", "alarm", "create_alarm"], ["Set an alarm."], [(["time", "at"], "string", clock)],
     ["Set an alarm for {0}.", "Wake me at {0}.", "I need an alarm at {0}.", "Alarm at {0}"], OK, "The alarm is set for {0}."),
    (["turn_on_light", "light_on", "lights_on"], ["Turn on the light in a room."], [(["room", "where"], "string", room)],
     ["Turn on the light in the {0}.", "Switch on the {0} light.", "Light in the {0}, please.", "It is dark in the {0}, turn on the light."], OK, "The light in the {0} is on."),
    (["turn_off_light", "light_off", "lights_off"], ["Turn off the light in a room."], [(["room", "where"], "string", room)],
     ["Turn off the light in the {0}.", "Switch off the {0} light.", "Turn the light off in the {0}."], OK, "The light in the {0} is off."),
    (["set_temperature", "heat", "set_heating"], ["Set the temperature of a room."], [(["room"], "string", room), (["degrees", "temperature"], "number", number(10, 30))],
     ["Set the {0} to {1} degrees.", "Heat the {0} to {1} degrees.", "Make it {1} degrees in the {0}."], OK, "The {0} is set to {1} degrees."),
    (["translate", "translate_text"], ["Translate a text."], [(["text"], "string", words(1, 4)), (["language", "to", "target"], "string", one_of(TONGUES))],
     ["Translate {0} into {1}.", "Translate {0} to {1}.", "What is {0} in {1}?", "How do you say {0} in {1}?"], [({"text": "{w}"}, "{w}")], "In {1} it is {res}."),
    (["convert_currency", "convert_money", "exchange"], ["Convert an amount of money."],
     [(["amount"], "number", number(1, 900)), (["from", "source"], "string", one_of(COINS)), (["to", "target"], "string", one_of(COINS))],
     ["Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?", "Change {0} {1} into {2}.", "What are {0} {1} in {2}?"], [({"amount": "{n}"}, "{n}")], "{0} {1} are {res} {2}."),
    (["get_stock_price", "stock_price", "quote"], ["Get the price of a stock."], [(["symbol", "ticker"], "string", one_of(STOCKS))],
     ["What is the price of the stock {0}?", "Get the stock price of {0}.", "How is {0} trading?", "Stock price of {0}?"], [({"price": "{n}"}, "{n}")], "The price of {0} is {res}."),
    (["create_event", "add_event", "schedule"], ["Add an event to the calendar."], [(["title", "name"], "string", words(1, 3)), (["day", "date"], "string", one_of(DAYS))],
     ["Add {0} to my calendar on {1}.", "Schedule {0} for {1}.", "Put {0} on my calendar for {1}.", "Plan {0} on {1}."], OK, "I added {0} on {1}."),
    (["list_events", "get_events", "calendar"], ["List the events of a day."], [(["day", "date"], "string", one_of(DAYS))],
     ["What is on my calendar on {0}?", "List my events on {0}.", "What do I have on {0}?", "Show the events of {0}."], [({"events": ["{w}"]}, "{w}")], "On {0} you have {res}."),
    (["book_table", "reserve_table"], ["Book a table."], [(["people", "guests"], "integer", number(1, 13)), (["time", "at"], "string", clock)],
     ["Book a table for {0} at {1}.", "Reserve a table for {0} people at {1}.", "I want a table for {0} at {1}."], OK, "The table for {0} is booked at {1}."),
    (["order_food", "order", "order_dish"], ["Order food."], [(["dish", "item"], "string", one_of(DISHES)), (["count", "quantity"], "integer", number(2, 10))],
     ["Order {1} {0}.", "I would like {1} {0}.", "Get me {1} {0}.", "Please order {1} {0}."], OK, "I ordered {1} {0}."),
    (["play_song", "play_music", "play"], ["Play a song."], [(["song", "title"], "string", one_of(SONGS))],
     ["Play {0}.", "Play the song {0}.", "I want to hear {0}.", "Put on {0}."], OK, "Now playing {0}."),
    (["define_word", "define", "dictionary"], ["Look up a word in the dictionary."], [(["word"], "string", one_of(WORDS))],
     ["Define the word {0}.", "Look up the word {0}.", "What does the word {0} mean?", "Find {0} in the dictionary."], [({"meaning": "{w}"}, "{w}")], "The word {0} means {res}."),
    (["calculate", "calculator", "evaluate"], ["Calculate an expression."], [(["expression", "formula"], "string", sum_text)],
     ["Calculate {0}.", "What is {0}?", "Compute {0}.", "Evaluate {0}.", "How much is {0}?"], [({"result": "{n}"}, "{n}")], "{0} = {res}"),
    (["read_file", "open_file", "cat"], ["Read a file."], [(["path", "file", "name"], "string", path)],
     ["Read the file {0}.", "Open {0}.", "Show me the file {0}.", "What is in {0}?", "Print {0}."], [({"content": "{w}"}, "{w}")], "The file {0} says: {res}"),
    (["delete_file", "remove_file"], ["Delete a file."], [(["path", "file", "name"], "string", path)],
     ["Delete the file {0}.", "Delete {0}.", "Remove {0}.", "Remove the file {0}."], OK, "I deleted {0}."),
    (["write_file", "save_file"], ["Write text to a file."], [(["path", "file"], "string", path), (["content", "text"], "string", words(1, 4))],
     ["Write {1} to {0}.", "Save {1} to the file {0}.", "Put {1} into {0}."], OK, "I wrote it to {0}."),
    (["run_command", "shell", "bash", "run"], ["Run a shell command."], [(["command", "cmd"], "string", one_of(["ls", "ls -l", "pwd", "date", "make", "make test", "git status", "git log", "df -h", "uptime", "whoami", "ps"]))],
     ["Run {0}.", "Run the command {0}.", "Execute {0}.", "Please run {0} in the shell."], [({"output": "{w}"}, "{w}")], "The command {0} printed: {res}"),
    (["get_distance", "distance"], ["Get the distance between two cities."], [(["from", "start"], "string", city), (["to", "end"], "string", city)],
     ["How far is it from {0} to {1}?", "What is the distance from {0} to {1}?", "Distance from {0} to {1}?", "How far is {1} from {0}?"], [({"km": "{n}"}, "{n}")], "It is {res} km from {0} to {1}."),
    (["find_flights", "search_flights", "flights"], ["Find flights."], [(["from", "origin"], "string", city), (["to", "destination"], "string", city), (["day", "date"], "string", one_of(DAYS))],
     ["Find a flight from {0} to {1} on {2}.", "I want to fly from {0} to {1} on {2}.", "Flights from {0} to {1} on {2}?"], [({"flights": ["{n}"]}, "{n}")], "I found flight {res} from {0} to {1} on {2}."),
    (["get_news", "news"], ["Get the news about a topic."], [(["topic", "about"], "string", one_of(TOPICS))],
     ["Get the news about {0}.", "What is the news about {0}?", "Show me {0} news.", "Any news about {0}?"], [({"news": ["{w}"]}, "{w}")], "The news about {0}: {res}"),
    (["add_note", "save_note", "note"], ["Save a note."], [(["text", "note"], "string", words(1, 5))],
     ["Note: {0}", "Make a note: {0}", "Write down {0}.", "Save the note {0}.", "Remember this: {0}"], OK, "I saved the note."),
    (["add_to_cart", "cart_add", "buy"], ["Put things into the cart."], [(["item", "product"], "string", thing), (["quantity", "count"], "integer", number(1, 20))],
     ["Put {1} of {0} into my cart.", "Add {1} {0} to the cart.", "I want to buy {1} {0}.", "Buy {1} {0}."], OK, "I put {1} {0} into the cart."),
    (["roll_dice", "dice"], ["Roll a die."], [(["sides", "faces"], "integer", number(4, 21))],
     ["Roll a die with {0} sides.", "Throw a {0} sided die.", "Roll a {0} sided die."], [({"roll": "{n}"}, "{n}")], "The die shows {res}."),
    (["random_number", "pick_number"], ["Draw a random number."], [(["min", "low"], "integer", number(1, 20)), (["max", "high"], "integer", number(30, 200))],
     ["Give me a random number between {0} and {1}.", "Random number from {0} to {1}.", "Pick a number between {0} and {1}."], [({"number": "{n}"}, "{n}")], "Your number is {res}."),
    (["send_email", "email", "mail"], ["Send an e-mail."], [(["to", "address"], "string", mail), (["subject"], "string", words(1, 3))],
     ["Send an email to {0} about {1}.", "Write an email to {0} with the subject {1}.", "Mail {0} about {1}."], OK, "I sent the email to {0}."),
    (["call_person", "call", "phone"], ["Call a person."], [(["name", "person"], "string", person)],
     ["Call {0}.", "Phone {0}.", "Give {0} a call.", "Ring {0}."], OK, "I am calling {0}."),
    (["set_color", "light_color", "paint"], ["Set the color of the light in a room."], [(["room"], "string", room), (["color"], "string", one_of(COLORS))],
     ["Make the light in the {0} {1}.", "Set the {0} light to {1}.", "Paint the {0} {1}."], OK, "The {0} is {1} now."),
    (["set_volume", "volume"], ["Set the volume."], [(["level", "volume"], "integer", number(0, 101))],
     ["Set the volume to {0}.", "Volume {0}.", "Turn the volume to {0}."], OK, "The volume is {0}."),
    (["set_fan", "fan"], ["Set the speed of the fan."], [(["speed", "level"], "string", one_of(LEVELS), LEVELS)],
     ["Set the fan to {0}.", "Fan speed {0}.", "Turn the fan to {0}."], OK, "The fan runs at {0} speed."),
    (["get_forecast", "forecast"], ["Get the weather forecast of a day."], [(["city", "location"], "string", city), (["day"], "string", one_of(DAYS))],
     ["What is the forecast for {0} on {1}?", "Forecast for {0} on {1}?", "How will the weather be in {0} on {1}?"], [({"sky": "{s}"}, "{s}")], "It will be {res} in {0} on {1}."),
    (["get_temperature", "temperature"], ["Get the temperature in a city."], [(["city", "location"], "string", city), (["unit", "units"], "string", one_of(["celsius", "fahrenheit"]), ["celsius", "fahrenheit"])],
     ["What is the temperature in {0} in {1}?", "Temperature in {0} in {1}?", "How warm is it in {0} in {1}?"], [({"temperature": "{n}"}, "{n}")], "It is {res} degrees {1} in {0}."),
    (["convert_length", "meters_to_feet"], ["Convert meters to feet."], [(["meters", "m"], "number", tenth(1, 60))],
     ["How many feet are {0} meters?", "Convert {0} meters to feet.", "What are {0} meters in feet?"], [({"feet": "{n}"}, "{n}")], "{0} meters are {res} feet."),
    (["book_hotel", "reserve_room", "hotel"], ["Book a hotel."], [(["city", "where"], "string", city), (["nights"], "integer", number(1, 15))],
     ["Book a hotel in {0} for {1} nights.", "I need a hotel in {0} for {1} nights.", "Reserve {1} nights in a hotel in {0}."], OK, "The hotel in {0} is booked for {1} nights."),
    (["remind_me", "reminder", "set_reminder"], ["Set a reminder."], [(["text", "what"], "string", words(1, 4)), (["time", "at"], "string", clock)],
     ["Remind me of {0} at {1}.", "Set a reminder for {0} at {1}.", "At {1}, remind me of {0}."], OK, "I will remind you of {0} at {1}."),
]

VERBS = {"get": "Get", "show": "Show", "find": "Find", "delete": "Delete", "cancel": "Cancel", "open": "Open", "close": "Close", "check": "Check", "print": "Print",
         "archive": "Archive", "approve": "Approve", "copy": "Copy", "lock": "Lock", "update": "Update", "start": "Start", "stop": "Stop"}
NOUNS = ("order user ticket invoice report task event page photo account booking machine job message record backup door contract patient student package lesson recipe "
         "server session plan game vote list key").split()


def by_number(r, verb="", noun=""):
    """A verb and a noun that may never have met before: cancel_booking(booking_id)."""
    v = verb or list(VERBS)[r.randrange(len(VERBS))]
    n = noun or NOUNS[r.randrange(len(NOUNS))]
    said = VERBS[v]
    ask = [said + " " + n + " {0}.", said + " the " + n + " {0}.", "Please " + v + " " + n + " {0}.", said + " " + n + " number {0}.", "Can you " + v + " " + n + " {0}?"]
    key = [n + "_id", "id", "number", n]
    return ([v + "_" + n, v + "_" + n, n + "_" + v], [said + " a " + n + ".", said + " the " + n + " with this number."], [(key, "integer", number(1, 9999))], ask, OK,
            "Done: " + v + " " + n + " {0}.")


def by_name(r, verb="", noun=""):
    """The same with a name in place of a number: find_user(name)."""
    v = verb or list(VERBS)[r.randrange(len(VERBS))]
    n = noun or NOUNS[r.randrange(len(NOUNS))]
    said = VERBS[v]
    ask = [said + " the " + n + " {0}.", said + " the " + n + " called {0}.", "Please " + v + " the " + n + " {0}.", "Can you " + v + " the " + n + " {0}?"]
    return ([v + "_" + n, v + "_" + n, n + "_" + v], [said + " a " + n + ".", said + " the " + n + " with this name."], [(["name", n, n + "_name", "title"], "string", words(1, 3))],
            ask, OK, "Done: " + v + " " + n + " {0}.")


# Kinds that are easily taken for each other, by their first names; "weather", "timer" and the like are those that pebble_data draws itself.
ALIKE = [group.split() for group in (
    "turn_on_light turn_off_light set_color", "create_event list_events remind_me", "read_file delete_file write_file run_command", "set_alarm remind_me timer",
    "weather get_forecast get_temperature time", "send_email call_person message", "book_table book_hotel find_flights order_food", "play_song set_volume set_fan",
    "get_stock_price convert_currency price add_to_cart", "random_number roll_dice calculate", "translate define_word search get_news", "get_distance find_flights weather",
    "set_temperature set_fan get_temperature", "add_note remind_me write_file", "convert_length get_distance convert_currency", "add multiply search")]


def alike(r, kind):
    """A kind that is easily taken for this one: a row, or the name of one that pebble_data draws itself."""
    name = kind if isinstance(kind, str) else kind[0][0]
    groups = [g for g in ALIKE if name in g]
    if not groups:
        verb, _, noun = name.partition("_")
        make = by_number if r.random() < 0.5 else by_name
        if r.random() < 0.6:
            return make(r, noun=noun)
        return make(r, verb=verb)
    others = [n for g in groups for n in g if n != name]
    other = others[r.randrange(len(others))]
    return next((k for k in KINDS if k[0][0] == other), other)


def kind_of(r):
    k = r.random()
    if k < 0.16:
        return by_number(r)
    if k < 0.28:
        return by_name(r)
    return KINDS[r.randrange(len(KINDS))]


def fill(value, res):
    """A result's pattern with what was drawn for it in place of {n}, {w} or {s}."""
    if isinstance(value, dict):
        return {k: fill(v, res) for k, v in value.items()}
    if isinstance(value, list):
        return [fill(v, res) for v in value]
    return res if value in ("{n}", "{w}", "{s}") else value


def schema(r, kind):
    """The tool of a kind, and its parameters' names in the kind's order."""
    pick = lambda xs: xs[r.randrange(len(xs))]
    names = [pick(p[0]) for p in kind[2]]
    described = r.random() < 0.3
    props = {}
    for name, p in zip(names, kind[2]):
        props[name] = {"type": p[1]}
        if described:
            props[name]["description"] = "The " + name.replace("_", " ")
        if len(p) > 3:
            props[name]["enum"] = p[3]
    fn = {"name": pick(kind[0]), "description": pick(kind[1]), "parameters": {"type": "object", "properties": props, "required": names}}
    if r.random() < 0.1:
        del fn["description"]
    if r.random() < 0.1:
        del fn["parameters"]["required"]
    if r.random() < 0.15:
        fn["parameters"]["additionalProperties"] = False
    if r.random() < 0.1:
        fn["strict"] = True
    return {"type": "function", "function": fn}, names


def ask(r, kind, names):
    """A request for a tool of this kind: (text, arguments, result, answer)."""
    pick = lambda xs: xs[r.randrange(len(xs))]
    values = [p[2](r) for p in kind[2]]
    if len(values) > 1 and len(set(map(str, values))) < len(values):
        return ask(r, kind, names)
    pattern, drawn = pick(kind[4])
    res = {"{n}": r.randrange(2, 900), "{w}": words(2, 4)(r), "{s}": pick(["sunny", "cloudy", "rainy", "windy", "clear", "snowy"]), "": ""}[drawn]
    result = fill(pattern, res)
    answer = kind[5].replace("{res}", str(res))
    for i, v in enumerate(values):
        answer = answer.replace("{%d}" % i, str(v))
    text = pick(kind[3])
    for i, v in enumerate(values):
        text = text.replace("{%d}" % i, str(v))
    return text, dict(zip(names, values)), result, answer
