"""A third set of notes and messages for recall, written before recall ran on it; nothing is tuned
on it.

It has statements in five subjects that the other sets do not have, each with a near miss that
shares words, among 180 generated notes. Use it for reports only: do not change a threshold because
of it.
"""

# name: the wanted note, its near miss, and the message.
_PAIRS = {
    # a game
    "physics": ("Physics runs at a fixed 120 Hz step; rendering interpolates between two states.",
                "The physics teacher of the advisory board answers on Fridays.",
                "the jump height depends on the frame rate"),
    "saves": ("Save games are versioned; a migration is never removed, because players come back after years.",
              "The summer sale saves players 40 percent.",
              "drop the old migrations of the save game format"),
    "shaders": ("Shaders are compiled at build time; compiling at runtime stutters on the handheld.",
                "The shader forum post of March has 200 answers.",
                "compile the water shader when the level loads"),
    "random": ("Gameplay uses the seeded generator in rng.h, so that replays stay in sync.",
               "Random encounters were cut from the second chapter.",
               "use std::rand for the loot drops"),
    "ecs": ("Components hold data only; logic belongs into systems, we decided after the inventory mess.",
            "The sound system of the studio is borrowed.",
            "give the health component a method that applies damage"),
    "textures": ("Textures are BC7, at most 2048 pixels wide, for the memory of the handheld.",
                 "Texture packs of fans are not supported by the help desk.",
                 "I want to import a 4096 texture for the dragon"),
    "netcode": ("Multiplayer is lockstep with a delay of three frames; floats are forbidden in simulation code.",
                "The multiplayer mode of the first game had 12 maps.",
                "store the unit position as a float in the simulation"),
    # infrastructure as code
    "state": ("Terraform state is in the bucket tf-state-prod with locking; nobody applies from a laptop.",
              "The state of Ohio region is closed to new tenants.",
              "run terraform apply from my machine"),
    "naming": ("Cloud resources are named env-team-purpose, all in lower case, at most 24 characters.",
               "The naming contest for the mascot ended on Friday.",
               "what do I call the new storage account?"),
    "k8s": ("Every pod has memory requests equal to its limits; without them the nodes were overcommitted.",
            "The pod of the podcast team is in the basement.",
            "deploy the worker without a memory limit"),
    "spot": ("Batch jobs run on spot instances and must survive a termination notice of two minutes.",
             "There is a spot on the lens of camera two.",
             "the nightly batch job dies in the middle"),
    "tls": ("Certificates come from cert-manager and rotate by themselves; do not commit any.",
            "The certificate of the training is sent by post.",
            "add the tls certificate for the new domain"),
    "backup": ("Databases are backed up at 02:00 UTC, and the restore is rehearsed on the first Monday.",
               "Backup singers for the keynote are booked.",
               "did anybody ever try to restore the database?"),
    "ipv6": ("The internal network is IPv6 only; services bind to :: and not to 0.0.0.0.",
             "The network dinner is on the 6th.",
             "bind the service to 0.0.0.0"),
    # a mobile app
    "offline": ("The app must work offline: writes go into the outbox table and are synced later.",
                "The offline store in Lyon opens at nine.",
                "show an error if there is no network when the user saves"),
    "minsdk": ("We support Android 9 and later; anything newer needs a compat shim.",
               "Android the film is on the watch list of the team.",
               "can I use the android 12 blur api?"),
    "strings": ("User-facing text is reviewed by Marta before it is translated.",
                "Text size of the slides is 28 points.",
                "I changed the wording on the login screen"),
    "startup": ("Cold start must stay below 800 ms: nothing synchronous in Application.onCreate.",
                "The startup fair needs two of us.",
                "initialise the analytics sdk in onCreate"),
    "crash": ("Crashes are grouped in Sentry by module; a release is stopped above 0.5 percent.",
              "The crash course in sailing is paid by the company.",
              "how many crashes are too many for the rollout?"),
    "deeplinks": ("Deep links are declared in routes.yaml and generated; never edit the manifest by hand.",
                  "Links to the brand kit expire each quarter.",
                  "add a deep link to the manifest"),
    "gestures": ("The back gesture is owned by the navigator; screens register with onBack.",
                 "A nice gesture: flowers for the support team.",
                 "swipe back closes the whole app on the detail screen"),
    # a command line tool
    "exit": ("Exit code 3 means partial success; scripts of customers depend on it.",
             "The exit interview is done by Nadia.",
             "return 1 when some of the files failed"),
    "stdout": ("Data goes to stdout, everything else to stderr, so that pipes stay clean.",
               "The pipe organ in the lobby is real.",
               "print a progress bar"),
    "flagsnew": ("New flags are hidden for one release behind TOOL_EXPERIMENTAL before they are documented.",
                 "The experimental kitchen is closed in July.",
                 "add a --parallel flag"),
    "windows": ("Paths are printed with forward slashes on Windows too; the tests compare them.",
                "The windows of the office are cleaned on Tuesdays.",
                "the golden files differ on windows because of backslashes"),
    "config": ("Config files are TOML; YAML was rejected for its implicit types.",
               "The config of the coffee machine is locked.",
               "read the settings from a yaml file"),
    "colour": ("Colour output is off when NO_COLOR is set or stdout is no terminal.",
               "The colour of the new chairs is moss green.",
               "ansi escapes end up in the log file"),
    "update": ("The tool never phones home: no update check, the security team of two customers forbids it.",
               "An update of the roadmap is due in May.",
               "notify users when a new version is out"),
    # a library for numbers
    "decimal": ("Interest is computed with Decimal and rounded half even at the very end.",
                "Interest in the reading group is low.",
                "round the interest after each month"),
    "api": ("The public API is frozen until 3.0: add keyword arguments, change no positional ones.",
            "The API of the lunch service is down often.",
            "add a required parameter to compound()"),
    "wheels": ("Wheels are built for manylinux2014; the bank runs a kernel of 2016.",
               "The wheels of the trolley squeak.",
               "can we drop support for old linux?"),
    "bench": ("A change that slows the hot loop by more than 3 percent is rejected by CI; run asv before you push.",
              "The bench in the yard is being painted.",
              "I rewrote the hot loop to be more readable"),
    "calendar": ("Business days follow the TARGET calendar, not that of the country of the user.",
                 "The calendar of the team has birthdays in it.",
                 "which holidays count when I shift a payment date?"),
    "nan": ("NaN is an error in inputs: raise ValueError and name the index; never drop it.",
            "Nan's apple cake recipe is on the wiki.",
            "skip missing values in the price series"),
    "types": ("mypy runs in strict mode; a type: ignore needs the error code and a reason.",
              "The type of the exhibition is a travelling one.",
              "silence mypy on this line"),
    "docs": ("Every public function has an example in its docstring, which doctest runs.",
             "The doctor comes for flu shots in October.",
             "document the new yield function"),
}  # fmt: skip

_TEAMS = ("Atlas", "Birch", "Comet", "Delta", "Ember", "Fjord")
_THINGS = (
    "onboarding", "settlement", "invoicing", "matchmaking", "voice chat", "leaderboard", "camera", "map view", "widget",
    "push service", "parser", "formatter", "installer", "yield curve", "bond pricer", "risk report", "cluster", "proxy",
    "registry", "vault", "dns", "replay viewer", "level editor", "dialogue tree", "crafting", "swaps", "cache",
    "router", "linter", "sampler",
)  # fmt: skip
_RULES = (
    "Team {team} answers questions about the {thing} in its own channel.",
    "The {thing} was moved to a repository of its own in week {week}.",
    "For the {thing} a review by two people of {team} is needed since week {week}.",
    "The dashboard of the {thing} has number {number}.",
    "An incident of the {thing} lasted {week} minutes; {team} wrote the report.",
    "{team} wants the {thing} to be renamed after release {number}.",
)

NOTES = {name: wanted for name, (wanted, _, _) in _PAIRS.items()}
NOTES |= {f"{name}, nearly": miss for name, (_, miss, _) in _PAIRS.items()}
NOTES |= {
    f"{thing} {rule}": text.format(
        team=_TEAMS[(at + rule) % 6], thing=thing, week=2 + at % 50, number=100 + 7 * at
    )
    for at, thing in enumerate(_THINGS)
    for rule, text in enumerate(_RULES)
}

WANTED = {asked: {name} for name, (_, _, asked) in _PAIRS.items()}

NOTHING = (
    "good morning", "that was quick, thank you", "yes, do it", "no, leave it as it was", "and now the second one",
    "what does this error mean?", "walk me through this file", "call it total instead of sum", "add a comment above it",
    "revert your last edit", "can this be faster?", "use a shorter name", "line 40 is too long", "what did you test?",
    "perfect", "order them by date", "what is a hash map?", "turn this into an async function",
    "write a regex for email addresses", "who wrote Hamlet?", "tell me a joke", "how do I undo the last git commit?",
    "what is tail recursion?", "print the numbers from 1 to 100", "concatenate two lists", "implement quicksort in Go",
    "what is the difference between a process and a thread?", "draw a box in CSS", "explain inheritance to a beginner",
    "what is a quaternion?", "how does garbage collection work?", "explain the halting problem",
    "what is a Merkle tree?", "plot a histogram", "what is a subnet mask?", "explain two-factor authentication",
    "why do floats not add up exactly?", "what is a semantic version?", "write a loop over the lines of a file",
    "how do I list open ports?", "which sorting algorithm is stable?", "add a test for the negative case",
    "the test is red, look into it", "pull this out into a helper", "does this leak memory?", "put this into French",
    "delete the dead code", "this class is too big", "is this idiomatic?", "annotate the return type",
    "never mind", "what time is it?", "what have we done so far?", "think first, then write", "hold on",
    "that is not what I meant", "start over", "is there a newer version of this library?", "open the readme",
    "make the function pure",
)  # fmt: skip
