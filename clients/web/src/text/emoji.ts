/** A table of emoji with the words that find them. A chunk of its own. */

export interface EmojiGroup {
  readonly name: string;
  readonly emoji: readonly (readonly [emoji: string, name: string])[];
}

const TABLE = {
  Smileys:
    "😀 grinning|😃 happy|😄 smile|😁 beaming|😆 laughing|😅 sweat smile|😂 joy tears|🤣 rolling laughing|🙂 slight smile|🙃 upside down|😉 wink|😊 blush|😇 angel|🥰 in love hearts|😍 heart eyes|🤩 star struck|😘 kiss|😋 yum|😜 tongue wink|🤪 zany|🤗 hug|🤭 giggle|🤫 quiet|🤔 thinking|🤐 zipper|😐 neutral|😑 expressionless|😶 no mouth|😏 smirk|😒 unamused|🙄 eye roll|😬 grimace|😌 relieved|😔 pensive|😴 sleeping|😷 mask|🤒 sick|🤕 hurt|🤢 nauseated|🥵 hot|🥶 cold|🥴 woozy|😵 dizzy|🤯 mind blown|🤠 cowboy|🥳 party|😎 cool sunglasses|🤓 nerd|🧐 monocle|😕 confused|😟 worried|🙁 frown|😮 surprised wow|😲 astonished|😳 flushed|🥺 pleading|😨 fearful|😰 anxious|😥 sad relieved|😢 cry|😭 sob|😱 scream|😤 triumph|😡 angry|🤬 swearing|😈 devil|💀 skull|💩 poop|🤡 clown|👻 ghost|👽 alien|🤖 robot",
  People:
    "👋 wave hello|🤚 raised back hand|✋ hand stop|👌 ok|🤌 pinched|✌️ victory peace|🤞 fingers crossed luck|🤟 love you|🤘 rock|👈 left|👉 right|👆 up|👇 down|☝️ point up one|👍 thumbs up yes|👎 thumbs down no|✊ fist|👊 punch|👏 clap|🙌 hooray|🫶 heart hands|👐 open hands|🤝 handshake deal|🙏 thanks please pray|✍️ write|💪 strong|👀 eyes look|🧠 brain|🫡 salute|🤷 shrug|🤦 facepalm|🙋 raise hand|🙇 bow sorry|💁 tipping hand|🏃 run|🚶 walk|💃 dance|👶 baby|🧑 person|👩 woman|👨 man|👵 grandmother|👴 grandfather|👪 family",
  Hearts:
    "❤️ heart love red|🧡 orange heart|💛 yellow heart|💚 green heart|💙 blue heart|💜 purple heart|🖤 black heart|🤍 white heart|🤎 brown heart|💔 broken heart|💕 two hearts|💖 sparkling heart|💯 hundred|💥 boom|💫 dizzy star|💬 speech|💤 sleep zzz|✨ sparkles|🔥 fire|⭐ star|🌟 glowing star",
  Nature:
    "🐶 dog|🐱 cat|🐭 mouse|🐹 hamster|🐰 rabbit|🦊 fox|🐻 bear|🐼 panda|🐨 koala|🐯 tiger|🦁 lion|🐮 cow|🐷 pig|🐸 frog|🐵 monkey|🐔 chicken|🐧 penguin|🐦 bird|🦉 owl|🐺 wolf|🐴 horse|🦄 unicorn|🐝 bee|🦋 butterfly|🐢 turtle|🐍 snake|🐙 octopus|🐬 dolphin|🐳 whale|🦈 shark|🌵 cactus|🎄 christmas tree|🌲 tree|🌴 palm|🌱 seedling|🍀 clover luck|🌸 blossom|🌹 rose|🌻 sunflower|🌍 earth|🌙 moon|☀️ sun|⛅ cloud sun|🌧️ rain|⛈️ storm|🌈 rainbow|❄️ snow|☃️ snowman|🌊 wave sea",
  Food: "🍎 apple|🍐 pear|🍊 orange|🍋 lemon|🍌 banana|🍉 melon|🍇 grapes|🍓 strawberry|🍒 cherry|🍑 peach|🥭 mango|🍍 pineapple|🥥 coconut|🥑 avocado|🍅 tomato|🌽 corn|🥕 carrot|🥔 potato|🍞 bread|🥐 croissant|🧀 cheese|🥚 egg|🥞 pancakes|🥓 bacon|🍔 burger|🍟 fries|🍕 pizza|🌭 hot dog|🥪 sandwich|🌮 taco|🥗 salad|🍝 pasta|🍜 noodles|🍣 sushi|🍚 rice|🍦 ice cream|🍩 donut|🍪 cookie|🎂 birthday cake|🍰 cake|🍫 chocolate|🍿 popcorn|☕ coffee|🍵 tea|🧃 juice|🍺 beer|🍻 cheers beers|🥂 cheers|🍷 wine|🍾 champagne",
  Activity:
    "⚽ football|🏀 basketball|🎾 tennis|🏐 volleyball|🏓 table tennis|🏸 badminton|🥅 goal|⛳ golf|🎣 fishing|🥊 boxing|🛹 skateboard|⛷️ ski|🏂 snowboard|🚴 bike|🏊 swim|🏆 trophy win|🥇 gold first|🥈 silver|🥉 bronze|🎯 target|🎮 game|🎲 dice|♟️ chess|🧩 puzzle|🎨 art|🎭 theatre|🎤 microphone|🎧 headphones|🎵 music|🎸 guitar|🎹 piano|🥁 drum|🎬 film|🎉 party tada|🎊 confetti|🎁 gift|🎈 balloon",
  Travel:
    "🚗 car|🚕 taxi|🚌 bus|🚓 police|🚑 ambulance|🚒 fire engine|🚚 truck|🚜 tractor|🚲 bicycle|🛵 scooter|🚂 train|🚆 rail|🚇 metro|✈️ plane|🚀 rocket ship|🚁 helicopter|⛵ sailboat|🚢 ship|⚓ anchor|🗺️ map|🏠 home house|🏢 office|🏥 hospital|🏫 school|🏨 hotel|⛪ church|🗼 tower|🗽 liberty|⛺ tent|🏖️ beach|🏔️ mountain",
  Objects:
    "⌚ watch|📱 phone|💻 laptop|🖥️ computer|⌨️ keyboard|🖨️ printer|📷 camera|🎥 video|📺 tv|⏰ alarm|⏳ hourglass|🔋 battery|🔌 plug|💡 idea bulb|🔦 torch|🕯️ candle|💰 money|💳 card|🔧 wrench|🔨 hammer|🪛 screwdriver|⚙️ gear|🔒 lock|🔓 unlock|🔑 key|🚪 door|🛏️ bed|🛒 shopping|📦 package box|✉️ mail|📮 postbox|📝 memo note|📄 page|📊 chart|📅 calendar|📌 pin|📎 paperclip|✂️ scissors|🗑️ bin|📚 books|📖 book|🔍 search|🧪 test|💊 pill|🩹 plaster",
  Signs:
    "✅ done check|☑️ checked|✔️ tick|❌ no cross|❎ cross box|⛔ stop|🚫 forbidden|⚠️ warning|❗ exclamation|❓ question|‼️ double exclamation|➕ plus|➖ minus|♻️ recycle|🔁 repeat|▶️ play|⏸️ pause|⏹️ stop|⏩ forward|⬆️ up|⬇️ down|⬅️ left|➡️ right|🔴 red|🟠 orange|🟡 yellow|🟢 green|🔵 blue|🟣 purple|⚫ black|⚪ white|🏁 finish|🚩 flag|🏳️‍🌈 rainbow flag|🆗 ok|🆕 new|🆒 cool|🔔 bell|🔕 mute",
};

export const groups: readonly EmojiGroup[] = Object.entries(TABLE).map(([name, table]) => ({
  name,
  emoji: table.split("|").map((pair) => {
    const space = pair.indexOf(" ");
    return [pair.slice(0, space), pair.slice(space + 1)] as const;
  }),
}));
