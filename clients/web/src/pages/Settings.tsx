/** Settings: of the person, on every device; and of this one. */

import { useSignal } from "@preact/signals";
import type { Device, Privacy, PushDeviceInfo } from "parley-chat";
import { BadToken, RequestRefused } from "parley-chat";
import { pushOf } from "parley-chat/push";
import { chooseTextSize, chooseTheme, textSize, theme } from "parley-ui/appearance.js";
import { Alert, Avatar, Button, Field, Select, Switch } from "parley-ui/controls.js";
import controls from "parley-ui/controls.module.css";
import { Question } from "parley-ui/Dialog.js";
import { Icon } from "parley-ui/Icon.js";
import { keep, kept } from "parley-ui/kept.js";
import { reasonOf } from "parley-ui/pageSession.js";
import { listTime } from "parley-ui/time.js";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { hrefOf } from "../app/route.js";
import { stopRinging } from "../app/shell.js";
import { leave, loadProfile, ownProfile, server, useApp } from "../app/state.js";
import { worker } from "../app/worker.js";
import { s } from "../strings.en.js";
import { plainName } from "../text/parse.js";
import frame from "./Frame.module.css";
import { PageHead } from "./PageHead.js";
import { panel } from "./panels.js";
import c from "./Settings.module.css";

export default function Settings() {
  return (
    <main class={frame.main}>
      <PageHead title={s.settings} />
      <div class={c.scroller}>
        <div class={c.page}>
          <Profile />
          <Appearance />
          <Notifications />
          <PrivacySettings />
          <Devices />
          <ThisDevice />
          <Password />
          <About />
          <End />
        </div>
      </div>
    </main>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class={c.section} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Profile() {
  const { client, person } = useApp();
  const me = ownProfile.value;
  const name = useSignal("");
  const about = useSignal("");
  const said = useSignal("");
  useEffect(() => {
    name.value = me?.display_name ?? "";
    about.value = me?.about ?? "";
  }, [me]);
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      await client.update({ display_name: name.value.trim() || person.username, about: about.value.trim() });
      await loadProfile();
      said.value = s.saved;
    } catch (error) {
      said.value = reasonOf(error);
    }
  };
  return (
    <Section title={s.profile}>
      <div class={c.who}>
        <Avatar id={person.userId} name={me?.display_name || person.username} size={88} />
        <div>
          <strong>
            <bdi>{plainName(me?.display_name || person.username)}</bdi>
          </strong>
          <p class={controls.hint}>@{me?.username ?? person.username}</p>
        </div>
      </div>
      <form class={c.form} onSubmit={save}>
        <Field label={s.displayName} value={name} maxLength={200} autoComplete="name" />
        <Field label={s.about} value={about} maxLength={1000} />
        <div class={c.row}>
          <Button type="submit">{s.save}</Button>
          <span role="status">{said.value}</span>
        </div>
      </form>
    </Section>
  );
}

function Appearance() {
  const enter = useSignal(kept("enter") ?? "send");
  return (
    <Section title={s.appearance}>
      <Select label={s.theme} value={theme.value} options={s.themes} onChange={chooseTheme} />
      <Select label={s.textSize} value={textSize.value} options={s.textSizes} onChange={chooseTextSize} />
      <Switch
        label={s.enterSends}
        isOn={enter.value === "send"}
        onChange={(isOn) => {
          enter.value = isOn ? "send" : "line";
          keep("enter", enter.value);
        }}
      />
    </Section>
  );
}

/** Why this browser cannot ring; null if it can. */
function whyNot(): string | null {
  if (!isSecureContext) return s.pushNeedsHttps;
  if (!("serviceWorker" in navigator && "PushManager" in window)) return s.pushNotHere;
  if (Notification.permission === "denied") return s.pushDenied;
  return null;
}

function Notifications() {
  const { client } = useApp();
  const devices = useSignal<readonly PushDeviceInfo[]>([]);
  const trouble = useSignal(whyNot() ?? "");
  const isBusy = useSignal(false);
  const push = pushOf(client);
  const load = () =>
    push.all().then(
      (all) => {
        devices.value = all;
      },
      () => {},
    );
  useEffect(() => void load(), []);
  const own = devices.value.find((device) => device.device_id === client.deviceId);
  const change = async (isOn: boolean, preview: boolean) => {
    if (isBusy.value) return;
    isBusy.value = true;
    trouble.value = "";
    try {
      if (!isOn) {
        await push.remove();
        await stopRinging(await worker());
      } else if ((await Notification.requestPermission()) !== "granted") trouble.value = s.pushDenied;
      else {
        const registration = await worker();
        if (registration) await push.registerBrowser(registration, { preview });
        keep("preview", preview ? "on" : null);
      }
    } catch (error) {
      const isOff = error instanceof RequestRefused && error.code === "not_found";
      trouble.value = isOff ? s.pushNotConfigured : reasonOf(error);
    }
    await load();
    isBusy.value = false;
  };
  return (
    <Section title={s.notifications}>
      {trouble.value && <p class={controls.hint}>{trouble.value}</p>}
      <Switch
        label={s.notifications}
        isOn={own !== undefined}
        disabled={whyNot() !== null}
        onChange={(isOn) => void change(isOn, false)}
      />
      <Switch
        label={s.notificationPreview}
        isOn={own?.preview ?? false}
        disabled={!own}
        onChange={(isOn) => void change(true, isOn)}
      />
      <QuietHours />
    </Section>
  );
}

const QUIET_FROM = "22:00";
const QUIET_TO = "07:00";

function QuietHours() {
  const { client } = useApp();
  const hours = ownProfile.value?.do_not_disturb;
  const change = async (from: string | null, to: string) => {
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    await client
      .update({ do_not_disturb: from === null ? null : { from, to, timezone: timeZone } })
      .catch(() => {});
    await loadProfile();
  };
  return (
    <>
      <Switch
        label={s.quietHours}
        isOn={Boolean(hours)}
        onChange={(isOn) => void change(isOn ? QUIET_FROM : null, QUIET_TO)}
      />
      {hours && (
        <div class={c.row}>
          <input
            class={controls.input}
            type="time"
            aria-label={s.quietFrom}
            value={hours.from}
            onChange={(event) => void change(event.currentTarget.value, hours.to)}
          />
          <input
            class={controls.input}
            type="time"
            aria-label={s.quietTo}
            value={hours.to}
            onChange={(event) => void change(hours.from, event.currentTarget.value)}
          />
        </div>
      )}
    </>
  );
}

function PrivacySettings() {
  const { client } = useApp();
  const me = ownProfile.value;
  if (!me) return null;
  const change = async (changed: Parameters<typeof client.update>[0]) => {
    await client.update(changed).catch(() => {});
    await loadProfile();
  };
  return (
    <Section title={s.privacy}>
      <Select
        label={s.lastSeenSetting}
        value={me.last_seen_privacy}
        options={s.privacyChoices}
        onChange={(value) => void change({ last_seen_privacy: value as Privacy })}
      />
      <Select
        label={s.whoMayAdd}
        value={me.who_may_add}
        options={s.privacyChoices}
        onChange={(value) => void change({ who_may_add: value as Privacy })}
      />
      <Switch
        label={s.sendReadReceipts}
        isOn={me.send_read_receipts}
        onChange={(isOn) => void change({ send_read_receipts: isOn })}
      />
      <p class={c.links}>
        <a href={hrefOf.page("contacts")}>{s.contacts}</a>
        <a href={hrefOf.page("blocked")}>{s.blocked}</a>
        <a href={hrefOf.page("invitations")}>{s.invitations}</a>
      </p>
    </Section>
  );
}

function Devices() {
  const { client } = useApp();
  const devices = useSignal<readonly Device[]>([]);
  const load = () =>
    client.devices().then(
      (all) => {
        devices.value = all;
      },
      () => {},
    );
  useEffect(() => void load(), []);
  return (
    <Section title={s.devices}>
      <ul class={c.list} aria-label={s.devices}>
        {devices.value.map((device) => {
          const name = plainName(device.device_name) || device.device_id;
          return (
            <li key={device.device_id} class={c.device} data-current={device.current}>
              <Icon name="devices" />
              <span class={c.grow}>
                <bdi>{name}</bdi>
                <span class={controls.hint}>
                  {device.current ? s.thisDevice : s.lastUsed(listTime(Date.parse(device.last_used_at)))}
                </span>
              </span>
              {!device.current && (
                <Button
                  aria-label={s.remove(name)}
                  onClick={async () => {
                    await client.removeDevice(device.device_id).catch(() => {});
                    await load();
                  }}
                >
                  {s.removeShort}
                </Button>
              )}
            </li>
          );
        })}
      </ul>
    </Section>
  );
}

const MB = 1024 * 1024;

function ThisDevice() {
  const { client } = useApp();
  const used = useSignal<number | null>(null);
  const isAsking = useSignal(false);
  const said = useSignal("");
  const look = async () => {
    used.value = (await navigator.storage?.estimate())?.usage ?? null;
  };
  useEffect(() => void look(), []);
  const isKept = kept("store") !== "memory";
  const clear = async () => {
    isAsking.value = false;
    await client.forgetLogs();
    await look();
    said.value = s.cleared;
  };
  /** What waits to be sent is in the store that is left: it must be empty. */
  const keepHere = async (isOn: boolean) => {
    if (client.unsent.length > 0) {
      said.value = s.somethingWaits;
      return;
    }
    keep("store", isOn ? null : "memory");
    await client.wipe();
    location.reload();
  };
  return (
    <Section title={s.thisDevice}>
      <Switch label={s.keepHere} isOn={isKept} onChange={(isOn) => void keepHere(isOn)} />
      <p class={controls.hint}>{client.storage === "indexeddb" ? s.keptHere : s.storageMemory}</p>
      {!isSecureContext && <p class={controls.hint}>{s.notSecure}</p>}
      {used.value !== null && <p class={controls.hint}>{s.spaceUsed((used.value / MB).toFixed(1))}</p>}
      <div class={c.row}>
        <Button
          disabled={client.storage !== "indexeddb"}
          onClick={() => {
            isAsking.value = true;
          }}
        >
          {s.clearHere}
        </Button>
        <span role="status">{said.value}</span>
      </div>
      {isAsking.value && (
        <Question
          title={s.clearQuestion}
          hint={s.clearHint}
          action={s.clearAction}
          onDo={() => void clear()}
          onClose={() => {
            isAsking.value = false;
          }}
        />
      )}
    </Section>
  );
}

function Password() {
  const { client } = useApp();
  const old = useSignal("");
  const next = useSignal("");
  const again = useSignal("");
  const reason = useSignal("");
  const said = useSignal("");
  const change = async (event: Event) => {
    event.preventDefault();
    said.value = reason.value = "";
    if (next.value !== again.value) {
      reason.value = s.passwordsDiffer;
      return;
    }
    try {
      const body = { old_password: old.value, new_password: next.value };
      await client.http.call("POST /v1/me/password", { body });
      said.value = s.passwordChanged;
      old.value = next.value = again.value = "";
    } catch (error) {
      reason.value = error instanceof BadToken ? s.wrongPassword : reasonOf(error);
    }
  };
  return (
    <Section title={s.password}>
      <form class={c.form} onSubmit={change}>
        {reason.value && <Alert>{reason.value}</Alert>}
        <Field label={s.oldPassword} value={old} type="password" autoComplete="current-password" required />
        <Field label={s.newPassword} value={next} type="password" autoComplete="new-password" required />
        <Field
          label={s.newPasswordAgain}
          value={again}
          type="password"
          autoComplete="new-password"
          required
        />
        <div class={c.row}>
          <Button type="submit">{s.changePassword}</Button>
          <span role="status">{said.value}</span>
        </div>
      </form>
    </Section>
  );
}

function About() {
  return (
    <Section title={s.aboutParley}>
      <p>
        {s.product} {__VERSION__}
        {server.value.version && ` · ${s.serverVersion(server.value.name, server.value.version)}`}
      </p>
      <p class={controls.hint}>{s.licence}</p>
      <p class={controls.hint}>{s.madeOf}</p>
      <Button
        onClick={() => {
          panel.value = { shown: "shortcuts" };
        }}
      >
        <Icon name="keyboard" />
        {s.keyboardShortcuts}
      </Button>
    </Section>
  );
}

function End() {
  const { client } = useApp();
  const isDeleting = useSignal(false);
  const password = useSignal("");
  const reason = useSignal("");
  const remove = async () => {
    try {
      await client.deleteAccount(password.value);
      await leave();
    } catch (error) {
      reason.value = error instanceof BadToken ? s.wrongPassword : reasonOf(error);
    }
  };
  return (
    <section class={c.end}>
      <Button onClick={() => void leave()}>
        <Icon name="leave" />
        {s.signOut}
      </Button>
      <Button
        look="quiet"
        onClick={() => {
          isDeleting.value = true;
        }}
      >
        {s.deleteAccount}
      </Button>
      {isDeleting.value && (
        <Question
          title={s.deleteAccountQuestion}
          hint={s.deleteAccountHint}
          action={s.deleteAccount}
          isDisabled={!password.value}
          onDo={() => void remove()}
          onClose={() => {
            isDeleting.value = false;
          }}
        >
          {reason.value && <Alert>{reason.value}</Alert>}
          <Field label={s.password} value={password} type="password" autoComplete="current-password" />
        </Question>
      )}
    </section>
  );
}
