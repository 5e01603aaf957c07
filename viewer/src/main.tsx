import {render} from 'preact';

import {App} from './page/app';
import {applyTheme} from './page/theme';
import './style.css';

applyTheme();
render(<App />, document.getElementById('app')!);
