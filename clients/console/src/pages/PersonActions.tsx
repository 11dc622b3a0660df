/** What operators do about a person. */

import { useSignal } from "@preact/signals";
import type { LinkMade, UserInfo } from "parley-chat";
import { Field, Switch } from "parley-ui/controls.js";
import { Dialog } from "parley-ui/Dialog.js";
import { wholeTime } from "parley-ui/time.js";
import { api } from "../app/api.js";
import { Danger } from "../parts/Danger.js";
import { Act, Dangerous, Id, pre, row } from "../parts/parts.js";
import { s } from "../strings.en.js";

export type PersonAction =
  | "disable"
  | "enable"
  | "revokeAll"
  | "resetLink"
  | "setPassword"
  | "makeOperator"
  | "endOperator"
  | "deletePerson";

type DialogProps = {
  action: PersonAction;
  person: UserInfo;
  onClose: () => void;
  /** Everything that the person wrote is being removed. */
  onErase?: () => void;
};

export function PersonButtons({
  person,
  onAsk,
}: {
  person: UserInfo;
  onAsk: (action: PersonAction) => void;
}) {
  if (person.state === "deleted") return null;
  const actions: PersonAction[] = [
    person.state === "active" ? "disable" : "enable",
    "revokeAll",
    "resetLink",
    "setPassword",
    person.is_operator ? "endOperator" : "makeOperator",
  ];
  return (
    <div class={row}>
      {actions.map((action) => (
        <Act key={action} onClick={() => onAsk(action)}>
          {s[action]}
        </Act>
      ))}
      <Dangerous>
        <Act onClick={() => onAsk("deletePerson")}>{s.deletePerson}</Act>
      </Dangerous>
    </div>
  );
}

export function PersonDialog(props: DialogProps) {
  const { action, person, onClose } = props;
  if (action === "resetLink") return <ResetLink {...props} />;
  if (action === "setPassword") return <SetPassword {...props} />;
  if (action === "deletePerson") return <Delete {...props} />;
  const path = { user_id: person.user_id };
  const simple = {
    disable: { hint: s.disableHint, run: () => api("POST /v1/admin/users/{user_id}/disable", { path }) },
    enable: { hint: s.enableHint, run: () => api("POST /v1/admin/users/{user_id}/enable", { path }) },
    revokeAll: {
      hint: s.revokeAllHint,
      run: () => api("DELETE /v1/admin/users/{user_id}/sessions", { path }),
    },
    makeOperator: {
      hint: s.makeOperatorHint,
      run: () => api("PUT /v1/admin/users/{user_id}/operator", { path }),
    },
    endOperator: {
      hint: s.endOperatorHint,
      run: () => api("DELETE /v1/admin/users/{user_id}/operator", { path }),
    },
  }[action];
  return (
    <Danger action={s[action]} isHarmless={action === "enable"} onDo={simple.run} onClose={onClose}>
      <p>{simple.hint(calledBy(person))}</p>
    </Danger>
  );
}

const calledBy = ({ username, user_id }: UserInfo) => username || user_id;

function ResetLink({ person, onClose }: DialogProps) {
  const made = useSignal<LinkMade | null>(null);
  if (made.value) {
    return (
      <Dialog title={s.resetLink} onClose={onClose}>
        <p>{s.resetLinkMade}</p>
        <div class={pre}>
          <Id of={made.value.url || `${location.origin}${made.value.path}`} />
        </div>
        <p>{s.resetLinkEnds(wholeTime(Date.parse(made.value.expires_at)))}</p>
      </Dialog>
    );
  }
  return (
    <Danger
      action={s.resetLink}
      isHarmless
      onDo={async () => {
        made.value = await api("POST /v1/admin/users/{user_id}/password-reset", {
          path: { user_id: person.user_id },
          body: {},
        });
      }}
      onClose={() => {
        if (!made.value) onClose();
      }}
    >
      <p>{s.resetLinkHint(calledBy(person))}</p>
    </Danger>
  );
}

function SetPassword({ person, onClose }: DialogProps) {
  const password = useSignal("");
  return (
    <Danger
      action={s.setPassword}
      isDisabled={!password.value}
      onDo={() =>
        api("POST /v1/admin/users/{user_id}/password", {
          path: { user_id: person.user_id },
          body: { password: password.value },
        })
      }
      onClose={onClose}
    >
      <p>{s.setPasswordHint(calledBy(person))}</p>
      <Field label={s.newPassword} value={password} type="password" autoComplete="new-password" required />
    </Danger>
  );
}

function Delete({ person, onClose, onErase }: DialogProps) {
  const erases = useSignal(false);
  return (
    <Danger
      action={s.deletePerson}
      typed={{ label: s.username, text: calledBy(person) }}
      onDo={async () => {
        await api("DELETE /v1/admin/users/{user_id}", {
          path: { user_id: person.user_id },
          query: erases.value ? { erase: "bodies" } : {},
        });
        if (erases.value) onErase?.();
      }}
      onClose={onClose}
    >
      <p>{s.deletePersonHint(calledBy(person))}</p>
      <Switch
        label={s.alsoErase}
        isOn={erases.value}
        onChange={(isOn) => {
          erases.value = isOn;
        }}
      />
    </Danger>
  );
}
