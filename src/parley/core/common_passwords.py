"""Words that most guessed passwords are made of: the beginning of every attacker's list.

`core.passwords` also knows what people make of a word (digits and signs around it, other letters that look
alike), so each word stands for thousands of passwords. Lower case; names, sports, places, phrases.
"""

from __future__ import annotations

_PHRASES = """
iloveyou iloveu iloveme iloveyoubaby iloveyousomuch iloveyoumore iloveyouforever ilovemyself ilovejesus
ilovegod ilovemum ilovemom ilovemymom ilovemyfamily ilovehim iloveher ihateyou ihateu fuckyou fuckoff letmein
letmeinnow please pleaseletmein openup opensesame welcome welcomehome welcomeback whatever whoami whocares
whatsup nothing something anything everything everyone nobody somebody secret topsecret mysecret trustnoone
trustno lovelove loveyou loveme lovers lover loverboy lovergirl loveless lovelife mylove truelove myself
mybaby babygirl babyboy babyblue babyface babycakes sweetheart sweety sweetie sweetpea sugar honey princess
prince princesa principessa princesse queen king kingdom goddess angel angels angelito angelica superman
batman spiderman ironman wonderwoman superstar superhero captain america captainamerica wolverine jesus
jesuschrist jesusislord jesuslovesme christ godisgood godislove godbless godblessme blessed blessing faith
amen hallelujah heaven heavenly hello helloworld hellokitty hellothere goodbye goodluck goodmorning goodday
money moneymaker cashmoney dollar dollars million millionaire rich lucky luckyone luckyday charm winner
changeme changeit changethis changepassword newpassword mypassword thepassword apassword password passwort
passwords passwrd passwd passw passphrase passcode passport passion pass passme passpass passwordpassword
contrasena contrasenya motdepasse mot parola parole haslo heslo kennwort losenord senha salasana wachtwoord
admin administrator administrador admins sysadmin superadmin adminadmin root toor rootroot superuser user
users username guest guests visitor login logon signin test tester testing testtest testuser testpass testme
demo default temp temporary temppass manager management operator operations office company corporate business
server service services support helpdesk system systems network internet intranet computer laptop desktop
windows linux ubuntu debian redhat apple macintosh android google facebook twitter instagram whatsapp telegram
youtube netflix spotify amazon microsoft samsung nokia huawei motorola oracle cisco yahoo hotmail gmail
outlook linkedin pinterest snapchat tiktok discord reddit github gitlab docker database mysql postgres mongodb
redis parley parleychat parleyserver parlay chat chatting message messages messenger talk talking
"""

_KEYS = """
qwerty qwertyuiop qwertyui qwertz qwertzuiop azerty azertyuiop asdfgh asdfghjkl asdf asdfasdf zxcvbn zxcvbnm
qazwsx qazwsxedc qazxsw qweasd qweasdzxc qwe asd zxc abc abcd abcde abcdef abcdefg abcdefgh abcabc abcxyz xyz
aaa aaaa bbb zzz xxx xxxx xoxo lol lolo lololol hehe haha hahaha blah blahblah foobar foo bar baz foobarbaz
asdasd qweqwe zxczxc wasd wasdwasd qaz wsx edc rfv tgb yhn ujm
"""

_NAMES = """
aaron abigail adam adriana adrian agnes ahmed aisha alan albert alberto alejandra alejandro alex alexander
alexandra alexandre alexis alfred alfredo ali alice alicia alison allison alyssa amanda amber amelia amy ana
anastasia andre andrea andreas andrei andres andrew andy angela angelina angelo anita ann anna annabelle anne
annie anthony antonia antonio april ariana arnold arthur ashley ashton austin barbara bart beatriz becky ben
benjamin bernard bernie beth bethany betty beyonce bianca bill billy blake bob bobby bonnie brad bradley
brandi brandon brandy brenda brendan brian brianna britney brittany bruce bryan caitlin camila camille carl
carla carlos carmen carol carolina caroline carrie casey cassandra cassie catalina catherine cecilia celeste
chad charles charlie charlotte chelsea cheryl chester chris christian christina christine christopher cindy
claire clara claudia clinton cody colin connor corey courtney craig cristian cristina crystal curtis cynthia
daisy dakota dallas damian dan dana daniel daniela danielle danny darren dave david dean debbie deborah denise
dennis derek destiny devin diana diane diego dimitri dominic dominique donald donna dorothy doug douglas
duncan dustin dylan eddie edgar edison eduardo edward elaine eleanor elena eli elias elijah elisabeth
elizabeth ella ellen emanuel emily emma enrique eric erica erick erik erika erin ernesto esteban esther ethan
eugene eva evan evelyn fabian fatima felipe felix fernanda fernando fiona florence frances francesca francis
francisco francois frank frankie franklin fred freddie freddy frederic gabriel gabriela gabrielle gary gavin
gemma geoffrey george georgia gerald gerard german gina giovanni gloria gordon grace graham grant greg gregory
guillaume gustavo hailey hannah hans harold harriet harry hassan hayley heather hector heidi helen helena
henry herbert holly howard hugo hunter ian ibrahim igor ingrid irene iris isaac isabel isabella isabelle
isaiah ivan jack jackie jackson jacob jacqueline jade jaime jake james jamie jan jane janet janice jared
jasmin jasmine jason javier jay jayden jean jeff jeffrey jenna jennifer jenny jeremiah jeremy jerome jerry
jesse jessica jessie jill jim jimmy joan joanna joe joel joey johan johann johannes john johnny johnson jonas
jonathan jordan jorge jose joseph joshua josie joyce juan juanita judith judy julia julian juliana julie
juliet julio justin justine karen karina karl karla kate katelyn katherine kathleen kathryn kathy katie
katrina kayla keith kelly kelsey ken kenneth kenny kevin kim kimberly kirsten klaus kristen kristin kristina
kurt kyle kylie lana lance larry laura lauren laurence lawrence leah lee leila lena leo leon leonard leonardo
leslie lewis liam liliana lily linda lindsay lindsey lisa logan lola london lorena lorenzo lori louis louise
lourdes lucas lucia lucinda lucy luis luisa luke lydia lynn mackenzie madeline madison maggie manuel marc
marcel marcela marcia marco marcos marcus margaret maria mariah mariam mariana marie marilyn marina mario
marion marissa mark marlene marlon marta martha martin martina martinez marvin mary mason mateo matilda matt
matteo matthew maureen maurice mauricio max maxime maximilian maxwell megan mehmet melanie melinda melissa
melody mercedes mia micah michael michaela michel michele michelle miguel mike mikhail mila miles milena
miranda miriam mitchell mohamed mohammad mohammed moises molly monica monika monique morgan moritz mustafa
nadia naomi natalia natalie natasha nathalie nathan nathaniel neil nelson nicholas nick nicki nicky nicola
nicolas nicole nikita niklas nikolai nina noah noel nora norman olga oliver olivia omar oscar owen pablo paige
pamela paola patricia patrick paul paula paulina pauline paulo pedro peggy penelope penny perry peter petra
philip philippe phillip phoebe pierre priscilla rachel rafael ralph ramon randy raquel raul ray raymond
rebecca regina renata rene renee ricardo richard rick ricky riley rita rob robbie robert roberta roberto robin
rodney rodrigo roger roland roman romeo ronald ronaldo ronnie rosa rosalie rosario rose rosemary ross roxana
roxanne ruben ruby russell ruth ryan sabrina sally salvador sam samantha sammy samuel sandra sandy santiago
sara sarah saul savannah scott sean sebastian selena serena sergei sergey sergio seth shane shannon sharon
shaun shawn sheila shelby shelly sherry shirley sierra silvia simon simone sofia sonia sonya sophia sophie
stacey stacy stanley stefan stefania stefanie stella stephanie stephen steve steven stewart stuart sue summer
susan susana susanne suzanne svetlana sylvia tamara tania tanya tara tatiana taylor teresa terry thalia theo
theodore theresa thiago thomas tiffany tim timothy tina todd tom tommy tony tracey tracy travis trevor trisha
tristan tyler valentina valentine valeria valerie vanessa vera verena veronica victor victoria vincent viktor
violet virginia vivian vladimir walter wanda warren wayne wendy wesley whitney wilfred william willie willow
wilson winston xavier yasmin yolanda yvonne zachary zoe zoey
"""

_THINGS = """
academy access action adidas adventure africa airforce airplane alabama alaska albatross alien aliens
alligator alpha alphabet amazing ambulance amigo amigos amor amormio amour anakin anarchy ancient animal
animals answer antelope apache apollo apples apricot aquarius aragorn arcade archer argentina aries arizona
army arsenal artist astronaut atlanta atlantis attitude australia autumn avatar awesome baby babes bacon
badass badboy badger badgirl baller balloon banana bananas bandit banker barbie barcelona barney baseball
basket basketball battle bayern beach beaches beagle bear bears beast beautiful beauty beaver beckham beer
beetle belgium belle bestfriend bestfriends bigbear bigboy bigdaddy bigdog bigfoot bigmac bigman bigred
biology biscuit bishop biteme blackbird blackcat blackie blackjack blaster blazer blizzard blonde blondie
blood bloody blossom bluebell blueberry bluebird bluedog blues blueeyes bluesky bmw bollocks booger boogie
booboo boomer boston bowling boxer boxing brasil bravo brazil breeze brewster bridge bright british broncos
brooklyn brother brothers brownie browns bubba bubble bubbles bubblegum buckeye buddha buddy buffalo buffy
bugsbunny bulldog bulldogs bullet bulls bunny burger buster butter buttercup butterfly button cactus caesar
california calvin camaro camera campbell canada canadian cancer candle candy candyman cannon capricorn
cardinal cardinals caramel carnage carnival carrot cartoon cartman casino casper castle catdog caterpillar
catfish cats cattle celtic celtics center champion champions champs chance changes chaos charger chargers
charming cheese cheesecake cheetah cheers cherokee cherry chevrolet chevy chicago chicken chico chief
chihuahua children chilli china chinese chips chipper chivas chloe chocolate chocolat chopper christmas chrome
chronic chucky church cigarette cinderella cinema cinnamon classic classroom clown cobra cocacola coco coconut
coffee cold college colorado colors columbia comet coming commando compaq concrete condor connect consult
control cookie cookies cool coolboy cooldude coolgirl coolman copper corazon corona corvette cosmos cougar
country courage cowboy cowboys cows coyote crazy crazyboy crazygirl cream creative cricket cristal cruise
crunch cucumber cupcake cupid cutie cutiepie cyber cyclone daddy daddysgirl dance dancer dancing danger dark
darkangel darkness darling darthvader daughter deadly death deathnote december deeznuts defender delfin
delight delta demon denver desert designer desire desperado destroyer detroit devil devils diablo diamond
diamonds dinosaur dirty disney doctor dodge dodger dodgers dog dogdog dogs doggie doggy dolphin dolphins
dominator domino donkey donut doodle dope doraemon dragon dragonball dragonfly dragons dream dreamer dreaming
dreams drive driver drum drummer duck duckie dude dynasty eagle eagles earth easter eclipse einstein electric
elephant elephants element elite elvis emerald eminem emperor empire energy engine engineer england english
enjoy enter entropy escape estrella eternal eternity europe evil evolution excalibur excellent exchange exodus
explorer explosion express extreme fairy falcon falcons family fantasia fantastic fantasy farmer fashion
father fatboy fatcat february ferrari fiesta fighter figaro filter finance fire fireball firebird firefly
firefighter firefox fireman fish fisher fishing flash flames flamingo flipper florida flower flowers fluffy
flyer flying football force ford forest forever fortune forum forward fountain foxtrot france freak free
freedom freefall freeman friday friend friends friendship frog froggy frogs fuck funny funtime future galaxy
gambit gamble game gameboy gamecube gamer games gandalf ganesh gangster garage garden garfield gasman gateway
gemini general generic genesis genius gentle germany ghost giant giants gibson gift giggles ginger girl girls
glamour glitter global goat goblin gold golden goldfish golf golfer golfing good goodboy goodgirl goodies
goofy gorgeous gorilla gothic grand grandma grandpa grape grapes grass gravity great greatone greece green
greenday greens griffin grizzly groovy growth guardian guitar gunner guns gymnast hacker halloween hamburg
hammer hamster handball handsome handyman happy happiness hardware harley harleydavidson harmony harvard
hatred hawaii hawk hawks hazel heart hearts heartless heineken helicopter hell hellfire hendrix hercules
heroes hiphop history hitman hobbit hockey holiday hollywood home homer honda honduras hornet horses horse
hotdog hotpink hotrod hotstuff house houston hummer hundred hunting hurricane husband hustler iceberg icecream
iceman illinois illusion image imagine immortal impact impala india indiana indian indigo indonesia infinity
inferno information inside insane inspiron integra intel invisible ireland irish island italia italian italy
jackass jaguar jaguars jamaica january japan jazz jedi jellybean jersey jewel jewels joker jokers journey
juice juicy july jumper june jungle junior jupiter juventus kangaroo karate kawasaki keeper kermit keyboard
killer killers killme kingkong kiss kissme kisses kisskiss kitchen kitten kittens kitty kittycat klingon
knight knights knockout korean kramer labrador ladies lady ladybug lakers laser lasvegas latin latina laugh
laughing leather legend legends legolas lemonade lemons liberty library light lightning lilmama limited
lincoln lion lionheart lionking lions liverpool lizard loca loco lockdown locked lollipop lollol lonely
lonestar longhorn loser losers lotus loulou lovebird lovebug lovely lowrider loyalty lucifer lullaby machine
madonna madrid mafia magic magical magician magnet magnolia magnum malaysia mama mamamia manchester manga
mango maniac manunited marathon march marine mariner mariners marines market marlboro marley marshall
marshmallow martian maserati master masters mastermind matrix matter maverick maxima mayday mazda meadow
meatball medical medicine megaman megatron melon member memories memory mercury merlin mermaid messi metal
metallica mexican mexico miami mickey mickeymouse midnight militar military milky minecraft minimum minnie
mirage miracle misfit mission mississippi missy misty mitsubishi mobile modern mohawk mommy monday monkey
monkeys monopoly monster monsters montana monteiro moon moonlight moonshine morning mortgage mother motocross
mountain mountains mouse movies mozart muffin mummy murder murphy muscle music musica musical mustang mustangs
mystery napoleon naruto nascar nation national nature naughty navy nebraska needle nemesis nemo neptune never
neverland newlife newyear newyork nightmare nightwing nike ninja ninjas nintendo nirvana nissan noodle noodles
normal norway november number numberone nursing nutella ocean october octopus offline ohyeah oklahoma older
olympic onelove onepiece online onlyme onlyone opera orange oranges orchid oregon original orlando orion otter
outlaw outside oxford pacific packard packer packers paladin panasonic panda pandas pandora pantera panther
panthers papa papito paradise parker party passenger patches patience patriot patriots peace peaceful peach
peaches peanut peanuts pearl pearljam pebbles pencil penguin penguins pepper pepperoni peppers pepsi perfect
personal phantom phoenix phone photo picasso picture pikachu pineapple pink pinkfloyd pinky pioneer pirate
pirates pisces pizza planet platinum play playa player playboy playgirl playstation pleasure poison pokemon
poker poland polar police polo pookie poop poopoo popcorn popeye poppy porsche portugal positive potato potter
power powerful powers precious predator premier presto pretty prettygirl private problem professional
professor promise prosper psycho puddin pumpkin puppies puppy purple pussycat pyramid python quality quest
rabbit rabbits racecar racing radiohead raider raiders rain rainbow rainbows raindrop rainy ranger rangers
rapper raptor rasta raven ravens reader reading realmadrid rebel rebels redbull reddog redneck redrose redsox
redwings reggae reggaeton remember renegade requiem rescue resident respect revenge revolution rhino rhythm
ribbon river roadrunner roadking robot robotech rock rocker rocket rocketman rockets rockon rocks rockstar
rocky romance romania romantic rooster rosebud roses rottweiler royal royals runner running runescape russia
rusty safety sailing sailor sailormoon saints sakura salmon salsa samsam samurai sanchez santa sapphire
satellite saturday saturn savage scarface school science scooby scoobydoo scooter scorpio scorpion scotland
seagull search seattle security semperfi senators senior september serenity seven sexy sexygirl shadow shadows
shaggy shark sharks shelter shopper shopping shorty shotgun silver simple simpson simpsons sister sisters
skate skateboard skater skeleton skipper skippy skittles skull skyline skywalker slacker slayer sleep sleepy
slim slipknot smart smile smiles smiley smith smoke smokey smokin smooth snake snakes snickers sniper snoopy
snow snowball snowboard snowflake snowman snowwhite soccer socrates soldier soldiers solomon solution sonic
sony southern southpark spain spanish spanky sparkle sparkles sparky sparrow spartan spartans special spectrum
speed speedy spencer spider spirit spitfire splash sponge spongebob spooky sport sports spring springs sprite
squirrel srilanka stallion star stargate starlight stars starwars startrek station stealth steelers sticky
stingray stone stones storm stormy stranger strawberry strawberries street strike striker strong student
studio submarine subzero success sun sunday sundance sunflower sunlight sunny sunrise sunset sunshine super
superb superfly surfer surfing surprise survivor susie suzuki sweden sweet sweets swimmer swimming swordfish
sydney sylvester symphony tacobell talent target taurus teacher teamo tekken telephone temple tempest
tennessee tennis terminal terminator terror texas thailand thebest thebeast theboss thecat theking theman
theone thunder thunderbird tiger tigers tigger time timeless tinker tinkerbell titanic titanium titans toby
together tomcat tomorrow tornado toronto tottenham tower toyota tractor traffic training transfer travel
traveler treasure trident trinity triple triumph trojan trojans trombone trooper trouble troubles trucker
trumpet turkey turtle turtles tweety twilight twinkle twins ultimate ultra umbrella underground undertaker
unicorn union unique united universal universe university unknown utopia valencia valentino valley vampire
vampires vanilla vector vegas vegeta venezuela venice venom verizon vermont victory vietnam viking vikings
villa vintage violin viper virgo virus vision volcano volkswagen volleyball voodoo voyager waffle wallace
walker warcraft warlock warning warrior warriors water waterfall watermelon watson weasel weather webmaster
wedding wednesday weekend welder west western westham westside whale whiskey white whitey widget wildcat
wildcats wildlife willy windsor wings winter wisdom wizard wizards wolf wolfgang wolfpack wolves woman wombat
women wonder wonderful woody worker working world wrangler wrestling wrestler writer yamaha yankee yankees
yellow yourmom youngmoney zebra zeppelin zero zidane zombie may august tuesday thursday one two three four
five six eight nine ten thousand red blue black brown paris berlin munich moscow lisbon rome milan napoli
torino dublin glasgow newcastle birmingham amsterdam rotterdam brussels vienna zurich geneva prague warsaw
budapest athens istanbul ankara cairo dubai delhi mumbai karachi dhaka jakarta manila singapore bangkok hanoi
beijing shanghai tokyo osaka seoul melbourne auckland montreal vancouver losangeles sanfrancisco sandiego
washington deutschland wales espana polska ukraine turkiye denmark finland colombia chile peru pakistan
bangladesh philippines korea egypt nigeria kenya
"""

COMMON_WORDS = frozenset(f"{_PHRASES} {_KEYS} {_NAMES} {_THINGS}".split())
