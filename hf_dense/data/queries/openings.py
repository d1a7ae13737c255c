"""Words by which a sentence says that it means nothing without those before it."""

# ruff: noqa: RUF001  # letters of Russian, and curly quotes

from __future__ import annotations

import re
from typing import Final

from hf_dense.data.languages import ENGLISH, Language

_ENGLISH: Final = (
    r"^\W*(?:that|it|its|they|their|them|he|she|his|her|we|our|you|such|here|there|both|neither|either"
    r"|however|therefore|thus|hence|but|and|or|so|also|then|moreover|furthermore|otherwise|instead|similarly|likewise"
    r"|finally|first|firstly|second|secondly|third|next|another|additionally|consequently|nevertheless|still|yet|again"
    r"|note|see|for (?:example|instance|this|that|these)|in (?:this|that|these|those|such|addition|contrast|particular|"
    r"other words|fact|our)|as (?:a result|such|above|before|another)|on the (?:one|other)|with that|if so|because"
    r"|the (?:same|other|first|second|third|next|last|previous)|an? (?:earlier|other|similar|further))\b"
    r"|\b(?:this|these|those|above|below|following|aforementioned|former|latter)\b|:$"
    r"|: [^;]*; [^;:]*: "  # a row of a table
)
# Of each language what such a sentence begins with, and what stands anywhere in it. "I" is Swedish for "in", and an
# article of Italian.
_OTHERS: Final = {
    "english": (r"i", r"$^"),
    "dutch": (
        r"dat|het (?:is|was|wordt|kan|heeft|zal|moet|bevat)|hij|zij|ze|hun|haar|wij|we|ons|onze|je|jij|u|uw|hier\w*"
        r"|daar\w*|er|echter|dus|maar|en|of|zo|ook|dan|daarom|vervolgens|bovendien|verder|anders|beide|zulke?|eerst"
        r"|ten (?:eerste|tweede|slotte)|tot slot|zie|bijvoorbeeld|aan de (?:ene|andere) kant|want|toch|nogmaals"
        r"|de (?:eerste|tweede|derde|volgende|laatste|andere)|een (?:ander|andere|tweede)",
        r"deze|dit|bovenstaande|onderstaande|volgende|hierboven|hieronder|eerdergenoemde|voornoemde",
    ),
    "french": (
        r"cela|ça|celui|celle|ceux|celles|ce|cet|c['’]\w+|il|ils|elle|elles|lui|leurs?|son|sa|ses|nous|notre|nos"
        r"|vous|votre|vos|on|tous (?:les )?deux|ici|là|y|en (?:effet|outre|revanche|fait|particulier|conséquence)"
        r"|cependant|toutefois|néanmoins|pourtant|donc|ainsi|mais|et|ou|or|car|aussi|alors|puis|ensuite|enfin"
        r"|finalement|d['’](?:abord|une part|autre part|autres?)|premièrement|deuxièmement|de (?:plus|même|la même)"
        r"|par (?:exemple|conséquent|ailleurs|contre)|pour (?:cela|ce faire)|sinon|voir|voici|voilà|notons|notez"
        r"|encore|l(?:es?|a) (?:mêmes?|premi\w+|deuxi\w+|second\w*|troisi\w+|derni\w+|suivant\w*|précédent\w*)"
        r"|l['’](?:une?|autre)|les (?:deux|autres)|une? (?:autre|second)\w*",
        r"cette|ces|ceci|ci-(?:dessus|dessous|après|contre)|précités?|susmentionn\w+|suivante?s?",
    ),
    "german": (
        r"er|sie|es|ihre?[rnms]?|ihnen|ihm|seine?[rnms]?|wir|uns\w*|das (?:ist|sind|war|wird|kann|bedeutet|heißt"
        r"|gilt)|dort|hier\w*|da|da(?:bei|durch|für|gegen|her|hin|mit|nach|neben|ran|rauf|raus|rin|rüber|rum|von|vor"
        r"|zu)|dann|deshalb|deswegen|dessen|deren|folglich|somit|also|so|aber|doch|jedoch|und|oder|denn|auch"
        r"|außerdem|zudem|ferner|weiterhin|trotzdem|dennoch|allerdings|andernfalls|ansonsten|sonst|ebenso|ähnlich"
        r"|schließlich|zuerst|zunächst|erstens|zweitens|drittens|anschließend|beide[rns]?|solche?[rnms]?|weder|siehe"
        r"|beachten|beispielsweise|nun|aus demselben|zum (?:beispiel|einen|anderen)|einerseits|andererseits|noch"
        r"|vielmehr|stattdessen|darüber hinaus|eine?[rnms]? (?:andere|weitere|ähnliche|zweite)\w*|d(?:er|ie|as|en"
        r"|em) (?:andere|erste|zweite|dritte|nächste|letzte|vorige|gleiche)\w*",
        r"diese?[rnms]?|oben|unten|folgende\w*|obige\w*|vorstehend\w*|(?:vorher|oben)?genannte\w*|ersterer"
        r"|letztere\w*",
    ),
    "italian": (
        r"ciò|esso|essa|essi|esse|lui|lei|loro|egli|suo|sua|suoi|sue|noi|nostr[oaie]|voi|vostr[oaie]|qui|qua|là|lì"
        r"|ci|c['’]è|entramb[ie]|tuttavia|però|quindi|dunque|perciò|pertanto|ma|ed?|od?|così|anche|inoltre|poi"
        r"|infine|altrimenti|invece|analogamente|infatti|ad? esempio|per (?:esempio|questo|ciò)|in (?:particolare"
        r"|effetti)|innanzitutto|prima di tutto|si noti|vedi|vedere|nota|ancora|di conseguenza|d['’]altra parte|tale"
        r"|tali|nessuno dei due|(?:il|la|i|le|gli|lo|l['’]) ?(?:prim|second|terz|ultim|stess|altr|prossim|precedent"
        r"|seguent)\w*|un(?:['’]|o|a)? ?(?:altr|second|ulterior)\w*",
        r"quest['’oaie]\w*|quell[oaie]|quei|quegli|seguenti?|sopra|sottostant[ei]|suddett[oaie]|precedenti?",
    ),
    "norwegian": (
        r"de[nt]? (?:er|var|har|kan|skal|blir|brukes|må|gjør|inneholder|finnes)|dem|han|hun|hans|hennes|deres|vi|vår"
        r"|våre|vårt|du|din|her|der|begge|imidlertid|derfor|dermed|altså|men|og|eller|så|også|da|dessuten|videre"
        r"|ellers|i stedet|likeledes|til slutt|først|for det (?:første|andre)|deretter|likevel|fortsatt|merk|se"
        r"|for eksempel|på den (?:ene|andre)|en annen|et annet|slike?|slikt|nå|fordi",
        r"denne|dette|disse|ovenfor|nedenfor|følgende|ovennevnte|førstnevnte|sistnevnte",
    ),
    "portuguese": (
        r"isso|aquilo|el[ea]s?|seus?|suas?|nós|noss[oa]s?|você|aqui|ali|lá|ambos|ambas|porém|contudo|entretanto"
        r"|portanto|assim|logo|mas|e|ou|também|então|além disso|depois|senão|caso contrário|finalmente|por fim"
        r"|primeiro|primeiramente|segundo|em (?:seguida|particular|outras palavras)|no entanto|por (?:exemplo|isso"
        r"|outro lado)|da mesma forma|de fato|ainda|veja|observe|note|tais|tal|pois|nem um|consequentemente"
        r"|[oa]s? (?:primeir|segund|terceir|últim|mesm|outr|próxim|seguint)\w*|um(?:a)? (?:outr|segund)\w*",
        r"[nd]?es(?:te|ta|tes|tas|se|sa|ses|sas)|isto|disto|disso|nisso|aquel[ea]s?|acima|abaixo|seguintes?"
        r"|supracitad\w+|anterior(?:es)?",
    ),
    "russian": (
        r"он|она|оно|они|его|её|ее|их|им|ему|мы|наш\w*|вы|ваш\w*|здесь|тут|там|туда|оба|обе|однако|поэтому|потому"
        r"|итак|но|а|и|или|так\w*|также|тоже|затем|потом|кроме того|более того|далее|иначе|вместо|аналогично|наконец"
        r"|во-\w+|сначала|тогда|тем не менее|всё же|все же|например|к примеру|в (?:частности|результате|этом|таком"
        r"|то же)|с (?:одной|другой) стороны|напротив|действительно|то есть|то|тот|та|те|другой|другая|другие"
        r"|перв\w+|втор\w+|треть\w+|следующ\w+|последн\w+|см|смотрите|обратите|заметьте|ещё|еще|ведь|следовательно",
        r"эт(?:от|а|о|и|ого|ой|ому|им|их|ими|у|ом|ою)|выше|ниже|следующ\w+|вышеуказанн\w+|данн(?:ый|ая|ое|ые|ого|ой"
        r"|ом)",
    ),
    "spanish": (
        r"ell[oa]s?|ello|él|eso|aquello|sus?|lo|nosotros|nuestr[oa]s?|usted(?:es)?|aquí|allí|ahí|ambos|ambas"
        r"|sin embargo|pero|por (?:(?:lo )?tanto|ejemplo|eso|ello|otr[oa]|consiguiente|último)|así|y|e|o|u|también"
        r"|entonces|además|luego|después|de lo contrario|finalmente|primero|en (?:primer|segundo|particular|cambio"
        r"|efecto|ese|otras)|a continuación|de (?:hecho|igual|la misma)|no obstante|aún|tal|tales|pues|véase|vea"
        r"|consulte|tenga en cuenta|ninguno|de nuevo|(?:el|l[oa]s?) (?:primer|segund|tercer|últim|mism|otr|próxim"
        r"|siguient)\w*|otr[oa]s?|un[oa]? (?:segund)\w*",
        r"est[eoa]s?|es[ea]|es[oa]s|aquel(?:la|los|las)?|arriba|abajo|anterior(?:es)?|siguientes?|mencionad[oa]s?"
        r"|dich[oa]s?",
    ),
    "swedish": (
        r"de[nt]? (?:är|var|har|kan|ska|blir|används|måste|gör|innehåller|finns)|dem|dess|deras|han|hon|hans|hennes"
        r"|vi|vår|våra|vårt|du|din|här\w*|där\w*|båda|emellertid|alltså|men|och|eller|så|också|dessutom|vidare"
        r"|annars|istället|i stället|likaså|slutligen|först|för det (?:första|andra)|sedan|dock|ändå|fortfarande"
        r"|observera|notera|se|till exempel|t\.ex|å (?:ena|andra)|en annan|ett annat|sådana?|sådant|nu|eftersom",
        r"denna|detta|dessa|denne|ovan\w*|nedan\w*|följande|förstnämnda|sistnämnda",
    ),
}
# Of scripts that put no spaces between words: Chinese, Japanese.
_UNSPACED: Final = (
    "^\\W*(?:这|那|此|该|其|它|他们|她|我们|但|因此|所以|而且|并且|然后|另外|此外|例如|比如|否则|首先|其次|最后|同样|以上|以下"
    "|この|その|これ|それ|ここ|そこ|こう|そう|しかし|ただし|だから|また|さらに|そして|なお|つまり|例えば|たとえば|一方|同様|なぜなら"
    "|まず|次に|最後に|以上|以下|上記|前述|私たち|われわれ|我々)"
)
_DEPENDENT: Final = {
    language: re.compile(rf"{_ENGLISH}|^\W*(?:{first})(?!\w|-\w)|\b(?:{anywhere})\b|{_UNSPACED}", re.IGNORECASE)
    for language, (first, anywhere) in _OTHERS.items()
}


def is_dependent(sentence: str, language: Language = ENGLISH) -> bool:
    """Whether a sentence says nothing without those before it, by the words of its language, and English ones.

    >>> is_dependent("They need water."), is_dependent("Zebras need water.")
    (True, False)
    """
    return _DEPENDENT[language.name].search(sentence) is not None
